"""Charts of a report: lines with bands, and groups of bars with whiskers, and the numbers that each shows.

No pyplot, as in `pictures`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple
from weakref import WeakKeyDictionary

from mtkit.evaluate.pictures import DPI, TITLE_POINTS, choose_fonts, printable

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.figure import Figure

_MARKERS = "os^Dvx+P*<"
_TICK_POINTS = 10.0
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


class Shown(NamedTuple):
    """What a chart shows, in numbers: a row for each point, or for each bar and gap between bars."""

    header: Sequence[str]
    rows: Sequence[Sequence[str | float | None]]


_shown: WeakKeyDictionary[Figure, Shown] = WeakKeyDictionary()


def numbers_shown(figure: Figure) -> Shown | None:
    """The numbers that a chart of this module was drawn from; None for any other figure."""
    return _shown.get(figure)


def line_figure(
    lines: Mapping[str, Sequence[Point]],
    *,
    x_label: str,
    y_label: str,
    x_scale: AxisScale = "linear",
    y_scale: AxisScale = "linear",
    x_ticks: Mapping[float, str] | None = None,
    title: str = "",
) -> Figure:
    """A line for each name through its points. `x_ticks` names places on the x axis in place of numbers."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 4.5), dpi=DPI, layout="constrained")
    axes = figure.add_subplot()
    drawn: dict[str, Artist] = {}
    # Ten colours, then the same ones with another marker: the lines stay apart, also in grey print.
    for number, (name, points) in enumerate(lines.items()):
        color = f"C{number % 10}"
        xs, ys = [point.x for point in points], [point.y for point in points]
        marker = _MARKERS[(number + number // 10) % len(_MARKERS)]
        (drawn[name],) = axes.plot(xs, ys, color=color, marker=marker, markersize=4, linewidth=1.5)
        if any(point.half_width for point in points):
            low = [point.y - point.half_width for point in points]
            high = [point.y + point.half_width for point in points]
            axes.fill_between(xs, low, high, color=color, alpha=0.15, linewidth=0)
    axes.set_xscale(x_scale)
    axes.set_yscale(y_scale)
    ticks = x_ticks or {}
    _finish(figure, drawn, x_label, y_label, ticks, title)
    _shown[figure] = Shown(
        ("line", f"x: {x_label}", "tick", f"y: {y_label}", "half width"),
        [
            (name, float(point.x), _one_line(ticks[point.x]) if point.x in ticks else None, *_numbers(point))
            for name, points in lines.items()
            for point in points
        ],
    )
    return figure


def bar_figure(
    bars: Mapping[str, Sequence[Bar | None]], groups: Sequence[str], *, y_label: str, x_label: str = ""
) -> Figure:
    """In each group a bar for each name, in their order; None leaves a gap."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    figure = Figure(
        figsize=(max(6.0, 1.2 + 0.45 * len(groups) * max(1, len(bars))), 4.5), dpi=DPI, layout="constrained"
    )
    axes = figure.add_subplot()
    width = 0.8 / max(1, len(bars))
    colors = {name: f"C{number % 10}" for number, name in enumerate(bars)}
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
            color=colors[name],
            error_kw={"linewidth": 1},
        )
        axes.bar_label(drawn, fmt="%.1f", fontsize=7, padding=2)
    keys = {name: Patch(color=color) for name, color in colors.items()}
    _finish(figure, keys, x_label, y_label, dict(enumerate(groups)))
    fonts, group_width = choose_fonts(groups), figure.get_size_inches()[0] / max(1, len(groups))
    lines = [line for group in groups for line in group.split("\n")]
    if any(fonts.inches(printable(line), _TICK_POINTS)[0] > 0.75 * group_width for line in lines):
        for text in axes.get_xticklabels():
            text.set(rotation=30, ha="right")
    _shown[figure] = Shown(
        ("bar", f"group: {x_label}" if x_label else "group", f"y: {y_label}", "half width"),
        [
            (name, _one_line(group), *_numbers(bar))
            for name, heights in bars.items()
            for group, bar in zip(groups, heights, strict=True)
        ],
    )
    return figure


def _numbers(mark: Point | Bar | None) -> tuple[float | None, float | None]:
    """Height and half width; None for what is not drawn."""
    if mark is None:
        return None, None
    return float(mark.y), float(mark.half_width) or None


def _one_line(name: str) -> str:
    return name.replace("\n", " ")


def _finish(
    figure: Figure,
    keys: Mapping[str, Artist],
    x_label: str,
    y_label: str,
    x_ticks: Mapping[float, str],
    title: str = "",
) -> None:
    """Names on the axes, above them, and in a legend where there is more than one line or kind of bar."""
    axes = figure.axes[0]
    fonts = choose_fonts([*keys, x_label, y_label, *x_ticks.values(), title])
    axes.set_xlabel(x_label, **fonts.style())
    axes.set_ylabel(y_label, **fonts.style())
    if x_ticks:
        names = ["\n".join(map(printable, tick.split("\n"))) for tick in x_ticks.values()]
        axes.set_xticks(list(x_ticks), names, **fonts.style())
        axes.minorticks_off()
    if title:
        width = figure.get_size_inches()[0]
        lines = fonts.wrap(printable(title), TITLE_POINTS, 0.95 * width)
        figure.suptitle("\n".join(lines), fontsize=TITLE_POINTS, **fonts.style())
    axes.grid(alpha=0.3, axis="y")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    if len(keys) > 1:
        # Keys given by hand: matplotlib would leave out a name that begins with an underscore.
        # A white ground: where bars fill the chart the legend stands on some of them.
        names = list(map(printable, keys))
        legend = axes.legend(list(keys.values()), names, fontsize=8, facecolor="white", edgecolor="none")
        for text in legend.get_texts():
            text.set(**fonts.style())
