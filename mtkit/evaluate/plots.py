"""Figures: the attention heat map, grids of them, and learning curves, as PNG, SVG or PDF by the file's suffix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from mtkit.evaluate.charts import Point, line_figure
from mtkit.evaluate.pictures import DPI, TITLE_POINTS, Fonts, checked_path, choose_fonts, label, printable, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from numpy.typing import ArrayLike, NDArray

Scale = Literal["linear", "log"]
Tokens = tuple[Sequence[str], Sequence[str]]
"""Of the columns and of the rows."""

_CELL_INCHES = 0.32
_GRID_CELL_INCHES = 0.12
_MIN_LINED_CELL_INCHES = 0.08  # lines between smaller cells would cover their colours
_MIN_MAP_INCHES = 1.5  # the longer side: the cells of short sentences are larger
_MAX_SIDE_INCHES = 24.0  # 3600 pixels; beyond it the cells shrink instead,
_MIN_SHRUNK_INCHES = 0.75  # but not to maps of which nothing is seen
_MAX_FONT_POINTS = 10.0
_MAX_GRID_FONT_POINTS = 7.0
_MIN_FONT_POINTS = 5.0
_EDGE_INCHES = 0.15
_AXIS_NAME_INCHES = 0.25
_BAR_INCHES = 0.2  # the colour bar's breadth
_BAR_ROOM_INCHES = 1.15  # with its numbers and its name
_LOG_FLOOR = 1e-4
"""The weakest attention that the log scale tells apart; weaker ones and zeros have the same colour."""


def attention_heatmap(
    attention: ArrayLike,
    src_tokens: Sequence[str],
    trg_tokens: Sequence[str],
    path: str | Path,
    *,
    scale: Scale = "linear",
    title: str | None = None,
    axes_names: tuple[str, str] = ("source", "target"),
) -> str:
    """Draws attention weights `[trg_len, src_len]` to a file: rows are target tokens, columns source tokens.

    Self-attention names its axes otherwise, columns first. The linear scale stresses dominant weights, the log scale
    shows weak ones. Returns the characters that no installed font can draw, each once (a box stands in their place);
    the empty string when the figure is complete. An SVG holds its text as text, drawn with the viewer's fonts.

    Raises:
        ValueError: the shape does not fit the tokens, or weights that are negative or not finite.
        RequestError: another suffix, or a file that cannot be written.
    """
    path = checked_path(path)
    figure = attention_figure(attention, src_tokens, trg_tokens, scale=scale, title=title, axes_names=axes_names)
    save_figure(figure, path)
    return _undrawn(path, (src_tokens, trg_tokens), title or "")


def attention_figure(
    attention: ArrayLike,
    src_tokens: Sequence[str],
    trg_tokens: Sequence[str],
    *,
    scale: Scale = "linear",
    title: str | None = None,
    axes_names: tuple[str, str] = ("source", "target"),
) -> Figure:
    """The figure of `attention_heatmap`, not yet in a file.

    Raises:
        ValueError: as `attention_heatmap`.
    """
    tokens = (src_tokens, trg_tokens)
    weights = _checked_weights(attention, tokens)
    return _draw([("", weights)], 1, tokens, scale=scale, title=title or "", axes_names=axes_names)


def attention_grid(
    maps: Sequence[tuple[str, ArrayLike]],
    n_columns: int,
    path: str | Path,
    *,
    scale: Scale = "linear",
    title: str = "",
    tokens: Tokens = ((), ()),
    axes_names: tuple[str, str] = ("", ""),
) -> str:
    """Draws many maps, each under its name, `n_columns` in a row, to a file; all share one colour scale.

    A single map is drawn as `attention_heatmap` draws it.

    tokens: of every map; they stand below and beside the outer maps, every n-th where all would run into each other.
        None at all leaves the maps without labels.

    Returns: the characters that no installed font can draw, as `attention_heatmap`.

    Raises:
        ValueError, RequestError: as `attention_heatmap`.
    """
    path = checked_path(path)
    figure = attention_grid_figure(maps, n_columns, scale=scale, title=title, tokens=tokens, axes_names=axes_names)
    save_figure(figure, path)
    return _undrawn(path, tokens, title)


def attention_grid_figure(
    maps: Sequence[tuple[str, ArrayLike]],
    n_columns: int,
    *,
    scale: Scale = "linear",
    title: str = "",
    tokens: Tokens = ((), ()),
    axes_names: tuple[str, str] = ("", ""),
) -> Figure:
    """The figure of `attention_grid`, not yet in a file."""
    unlabelled = not tokens[0] and not tokens[1]
    checked = [(name, _checked_weights(weights, None if unlabelled else tokens)) for name, weights in maps]
    if len(checked) == 1:
        return _draw(checked, 1, tokens, scale=scale, title=title or checked[0][0], axes_names=axes_names)
    return _draw(checked, min(n_columns, len(maps)), tokens, scale=scale, title=title, axes_names=axes_names)


def _checked_weights(attention: ArrayLike, tokens: Tokens | None) -> NDArray[np.float64]:
    weights = np.asarray(attention, dtype=float)  # [trg_len, src_len]
    if weights.size == 0 or (tokens and weights.shape != (len(tokens[1]), len(tokens[0]))):
        n_tokens = f"{len(tokens[1])} target and {len(tokens[0])} source tokens" if tokens else "a map"
        raise ValueError(f"attention of shape {weights.shape} does not fit {n_tokens}")
    if not np.isfinite(weights).all() or weights.min() < 0:
        raise ValueError("attention weights must be finite and not negative")
    return weights


def _undrawn(path: Path, tokens: Tokens, title: str) -> str:
    return "" if path.suffix.lower() == ".svg" else choose_fonts([*map(label, [*tokens[0], *tokens[1]]), title]).missing


def _draw(
    maps: Sequence[tuple[str, NDArray[np.float64]]],
    n_columns: int,
    tokens: Tokens,
    *,
    scale: Scale,
    title: str,
    axes_names: tuple[str, str],
) -> Figure:
    """One map with its tokens above and beside it, or a grid with tokens below and beside the outer maps."""
    from matplotlib.colors import LogNorm, Normalize

    is_grid = len(maps) > 1
    names = [label(name) for name, _ in maps] if is_grid else []
    labels = ([label(token) for token in tokens[0]], [label(token) for token in tokens[1]])
    fonts = choose_fonts([*names, *labels[0], *labels[1], *axes_names, title])
    counts = (-(-len(maps) // n_columns), n_columns)
    sizes = _sizes(maps[0][1].shape, counts, names, labels, fonts)
    figure, every, bar = _lay_out(sizes, counts, title, axes_names, fonts, column_labels_below=is_grid)

    top = max(_LOG_FLOOR * 10, *(float(weights.max()) for _, weights in maps))
    norm = LogNorm(_LOG_FLOOR, top) if scale == "log" else Normalize(0.0, top)
    for number, (axes, (_, weights)) in enumerate(zip(every, maps, strict=False)):
        shown = np.maximum(weights, _LOG_FLOOR) if scale == "log" else weights
        # "rgba" colours the cells, not the pixels: the same picture in a fraction of the time.
        image = axes.imshow(
            shown, cmap="Blues", norm=norm, aspect="auto", interpolation="nearest", interpolation_stage="rgba"
        )
        if sizes.cell >= _MIN_LINED_CELL_INCHES:
            _draw_lines_between(axes, weights.shape)
        if is_grid:
            axes.set_title(names[number], fontsize=_MAX_GRID_FONT_POINTS, pad=3, **fonts.style())
        else:
            axes.xaxis.tick_top()
        is_lowest, is_first = number + n_columns >= len(maps), number % n_columns == 0
        _name_ticks(axes.xaxis, labels[0] if is_lowest else [], sizes, fonts, rotation=90)
        _name_ticks(axes.yaxis, labels[1] if is_first else [], sizes, fonts)
    for axes in every[len(maps) :]:
        axes.remove()
    figure.colorbar(image, cax=bar, label="attention")
    return figure


class _Sizes(NamedTuple):
    """Of the maps of a figure, in inches but for letters and stride."""

    cell: float
    map_width: float
    map_height: float
    gap_width: float
    gap_height: float  # the room of a map's name
    longest_labels: tuple[float, float]  # of the columns and of the rows
    font_points: float
    stride: int  # every n-th token is named


def _sizes(
    shape: tuple[int, ...], counts: tuple[int, int], names: list[str], labels: tuple[list[str], list[str]], fonts: Fonts
) -> _Sizes:
    """Cells as large as their letters want them, within the bounds of the whole picture.

    shape: of each map, [trg_len, src_len].
    counts: maps above each other, maps side by side.
    names: of the maps of a grid; a map that stands alone has none.
    """
    name_sizes = [fonts.inches(name, _MAX_GRID_FONT_POINTS) for name in names]
    widest, highest = (max(side) for side in zip(*name_sizes, strict=True)) if names else (0.0, 0.0)
    gap_width, gap_height = (_EDGE_INCHES, highest + 0.1) if names else (0.0, 0.0)
    most_height = max(_MAX_SIDE_INCHES / counts[0] - gap_height, _MIN_SHRUNK_INCHES)
    most_width = max(_MAX_SIDE_INCHES / counts[1] - gap_width, _MIN_SHRUNK_INCHES, widest)
    wanted = max(_GRID_CELL_INCHES if names else _CELL_INCHES, _MIN_MAP_INCHES / max(shape))
    cell = min(wanted, most_height / shape[0], most_width / shape[1])
    font_points = min(_MAX_GRID_FONT_POINTS if names else _MAX_FONT_POINTS, max(_MIN_FONT_POINTS, 0.6 * cell * 72))
    measured = [[fonts.inches(text, font_points) for text in side] for side in labels]
    height = max((height for side in measured for _, height in side), default=0.0)
    longest_columns, longest_rows = (max((width for width, _ in side), default=0.0) for side in measured)
    return _Sizes(
        cell=cell,
        map_width=shape[1] * cell,
        map_height=shape[0] * cell,
        gap_width=max(gap_width, gap_width + widest - shape[1] * cell),
        gap_height=gap_height,
        longest_labels=(longest_columns, longest_rows),
        font_points=font_points,
        stride=max(1, int(np.ceil(1.03 * height / cell))),
    )


def _lay_out(
    sizes: _Sizes,
    counts: tuple[int, int],
    title: str,
    axes_names: tuple[str, str],
    fonts: Fonts,
    *,
    column_labels_below: bool,
) -> tuple[Figure, list[Axes], Axes]:
    """The figure with its title and the names of its axes, the axes for the maps row by row, and those of the bar.

    Places are reckoned, not left to a layout engine: it would make cells smaller than their labels were chosen for.
    """
    from matplotlib.figure import Figure

    n_rows, n_columns = counts
    maps_width = n_columns * (sizes.map_width + sizes.gap_width) - sizes.gap_width
    maps_height = n_rows * (sizes.map_height + sizes.gap_height) - sizes.gap_height
    column_labels, row_labels = (longest + 0.1 for longest in sizes.longest_labels)
    column_name, row_name = (_AXIS_NAME_INCHES if name else 0.0 for name in axes_names)
    left = _EDGE_INCHES + row_name + row_labels
    width = left + maps_width + _BAR_ROOM_INCHES

    lines = fonts.wrap(printable(title), TITLE_POINTS, width - 2 * _EDGE_INCHES)
    top = 2 * _EDGE_INCHES + sum(1.2 * fonts.inches(line, TITLE_POINTS)[1] for line in lines) + sizes.gap_height
    bottom = _EDGE_INCHES + max(0.0, _MIN_MAP_INCHES - maps_height)  # the bar has that height at least
    if column_labels_below:
        bottom = max(bottom, _EDGE_INCHES + column_name + column_labels)
    else:
        top += column_name + column_labels
    height = top + maps_height + bottom

    figure = Figure(figsize=(width, height), dpi=DPI)
    every = figure.subplots(
        n_rows,
        n_columns,
        squeeze=False,
        gridspec_kw={
            "left": left / width,
            "right": (left + maps_width) / width,
            "top": 1 - top / height,
            "bottom": bottom / height,
            "wspace": sizes.gap_width / sizes.map_width,
            "hspace": sizes.gap_height / sizes.map_height,
        },
    )
    bar_height = max(maps_height, _MIN_MAP_INCHES)
    bar_left, bar_bottom = left + maps_width + _BAR_INCHES, height - top - bar_height
    bar = figure.add_axes((bar_left / width, bar_bottom / height, _BAR_INCHES / width, bar_height / height))
    if lines:
        figure.suptitle("\n".join(lines), y=1 - _EDGE_INCHES / height, fontsize=TITLE_POINTS, **fonts.style())
    name_style = {"fontsize": _MAX_FONT_POINTS, "ha": "center", "va": "center", **fonts.style()}
    name_y = (
        bottom - column_labels - column_name / 2
        if column_labels_below
        else height - top + column_labels + column_name / 2
    )
    figure.supxlabel(axes_names[0], x=(left + maps_width / 2) / width, y=name_y / height, **name_style)
    figure.supylabel(
        axes_names[1], x=(_EDGE_INCHES + row_name / 2) / width, y=(bottom + maps_height / 2) / height, **name_style
    )
    return figure, list(every.flat), bar


def _draw_lines_between(axes: Axes, shape: tuple[int, ...]) -> None:
    """White lines between the cells of a map."""
    n_rows, n_columns = shape
    axes.autoscale(False)
    axes.vlines(np.arange(0.5, n_columns - 1), -0.5, n_rows - 0.5, color="white", linewidth=0.5)
    axes.hlines(np.arange(0.5, n_rows - 1), -0.5, n_columns - 0.5, color="white", linewidth=0.5)


def _name_ticks(axis: Axis, names: Sequence[str], sizes: _Sizes, fonts: Fonts, rotation: float = 0) -> None:
    """Write the names of tokens, or of every n-th, beside their cells; no ticks without them."""
    style = {"fontsize": sizes.font_points, "rotation": rotation, **fonts.style()}
    axis.set_ticks(range(0, len(names), sizes.stride), names[:: sizes.stride], **style)
    axis.set_tick_params(length=0)


def attention_text(
    attention: ArrayLike, columns: Sequence[str], rows: Sequence[str], *, scale: Scale = "linear"
) -> str:
    """Attention weights as shades in a terminal: a line for each row, two characters for each numbered column; then
    what the shades mean, and the tokens of the columns.
    """
    from rich.cells import cell_len  # Chinese letters take two places

    weights = np.asarray(attention, dtype=float)
    top = max(float(weights.max()), _LOG_FLOOR * 10)
    names = [printable(name) for name in rows]
    width = max(map(cell_len, names))
    lines = [" " * width + " " + _column_numbers(len(columns))]
    for name, row in zip(names, weights, strict=True):
        shades = "".join(_shade(float(weight), top, scale) * 2 for weight in row)
        lines.append(name + " " * (width - cell_len(name) + 1) + shades)
    lines += ["", _shade_key(top, scale)]
    lines += [" ".join(f"{number} {printable(token)}" for number, token in enumerate(columns, start=1))]
    return "\n".join(line.rstrip() for line in lines)


def _column_numbers(n_columns: int) -> str:
    """Two places a column: the numbers up to 8, then every fifth, so that they stay apart."""
    places = [" "] * (2 * n_columns)
    for number in range(1, n_columns + 1):
        if number < 9 or number % 5 == 0:
            text = str(number)
            places[2 * number - len(text) : 2 * number] = text
    return "".join(places)


_SHADES = " ░▒▓█"


def _shade(weight: float, top: float, scale: Scale) -> str:
    """One of five shades: by fifths of the largest weight, or by fifths of the powers of ten between the weakest that
    the log scale tells apart and the largest.
    """
    share = weight / top
    if scale == "log":
        share = float(np.log(max(weight, _LOG_FLOOR) / _LOG_FLOOR) / np.log(top / _LOG_FLOOR))
    return _SHADES[min(4, int(share * 5))]


def _shade_key(top: float, scale: Scale) -> str:
    """The least weight of each shade."""
    fifths = [number / 5 for number in range(1, 5)]
    least = [_LOG_FLOOR * (top / _LOG_FLOOR) ** fifth if scale == "log" else top * fifth for fifth in fifths]
    shades = [f"{shade * 2} from {weight:.2g}" for shade, weight in zip(_SHADES[1:], least, strict=True)]
    return f"{', '.join(shades)}; the largest weight is {top:.2g}"


def learning_curve(
    points: Mapping[str, Sequence[tuple[float, float]]],
    path: str | Path,
    *,
    x_label: str = "training time (minutes)",
    y_label: str = "BLEU",
) -> None:
    """Draws a line for each name through its (minutes, BLEU) points, in the order given, to a file.

    Raises:
        RequestError: another suffix, or a file that cannot be written.
    """
    lines = {name: [Point(x, y) for x, y in curve] for name, curve in points.items()}
    # A chart has no legend for a line that is alone.
    title = next(iter(points)) if len(points) == 1 else ""
    save_figure(line_figure(lines, x_label=x_label, y_label=y_label, title=title), path)
