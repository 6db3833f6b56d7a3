"""Charts of a report: lines with bands, and groups of bars with whiskers. No pyplot, as in `plots`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_DPI = 150
_MARKERS = "os^Dvx+P*<"
AxisScale = Literal["linear", "log"]


class Point(NamedTuple):
    """One point of a line; `half_width` draws a band."""

    x: float
    y: float
    half_width: float = 0.0


class Bar(NamedTuple):
    """The end of a bar; `half_width` draws a whisker."""

    y: float
    half_width: float = 0.0


def line_figure(
    lines: Mapping[str, Sequence[Point]],
    *,
    x_label: str,
    y_label: str,
    x_scale: AxisScale = "linear",
    y_scale: AxisScale = "linear",
    x_ticks: Mapping[float, str] | None = None,
) -> Figure:
    """A line for each name through its points. `x_ticks` names places on the x axis in place of numbers."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 4.5), dpi=_DPI, layout="constrained")
    axes = figure.add_subplot()
    for number, (name, points) in enumerate(lines.items()):
        color = f"C{number % 10}"
        xs, ys = [point.x for point in points], [point.y for point in points]
        marker = _MARKERS[(number + number // 10) % len(_MARKERS)]
        axes.plot(xs, ys, color=color, marker=marker, markersize=4, linewidth=1.5, label=name)
        if any(point.half_width for point in points):
            low = [point.y - point.half_width for point in points]
            high = [point.y + point.half_width for point in points]
            axes.fill_between(xs, low, high, color=color, alpha=0.15, linewidth=0)
    axes.set_xscale(x_scale)
    axes.set_yscale(y_scale)
    if x_ticks:
        axes.set_xticks(list(x_ticks), list(x_ticks.values()))
        axes.minorticks_off()
    _finish(axes, x_label, y_label)
    return figure


def bar_figure(
    bars: Mapping[str, Sequence[Bar | None]], groups: Sequence[str], *, y_label: str, x_label: str = ""
) -> Figure:
    """In each group a bar for each name, in their order; None leaves a gap."""
    from matplotlib.figure import Figure

    figure = Figure(
        figsize=(max(6.0, 1.2 + 0.45 * len(groups) * max(1, len(bars))), 4.5), dpi=_DPI, layout="constrained"
    )
    axes = figure.add_subplot()
    width = 0.8 / max(1, len(bars))
    for number, (name, heights) in enumerate(bars.items()):
        there = [(place, bar) for place, bar in enumerate(heights) if bar is not None]
        xs = [place + (number - (len(bars) - 1) / 2) * width for place, _ in there]
        whiskers = [bar.half_width for _, bar in there]
        drawn = axes.bar(
            xs,
            [bar.y for _, bar in there],
            width * 0.92,
            yerr=whiskers if any(whiskers) else None,
            capsize=2,
            label=name,
            color=f"C{number % 10}",
            error_kw={"linewidth": 1},
        )
        axes.bar_label(drawn, fmt="%.1f", fontsize=7, padding=2)
    axes.set_xticks(range(len(groups)), list(groups))
    if any(len(group) > 12 for group in groups):
        for text in axes.get_xticklabels():
            text.set(rotation=30, ha="right")
    _finish(axes, x_label, y_label)
    return figure


def _finish(axes: Axes, x_label: str, y_label: str) -> None:
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.grid(alpha=0.3, axis="y")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    if len(axes.get_legend_handles_labels()[0]) > 1:
        axes.legend(frameon=False, fontsize=8)
