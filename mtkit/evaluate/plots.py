"""Figures: the attention heat map and learning curves, as PNG, SVG or PDF by the file's suffix.

matplotlib is used through its Figure objects alone: no pyplot, so no global state and no window system.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from mtkit.errors import RequestError
from mtkit.text.lines import open_output

if TYPE_CHECKING:
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from numpy.typing import ArrayLike

Scale = Literal["linear", "log"]

_SUFFIXES = (".png", ".svg", ".pdf")
_DPI = 150
_CELL_INCHES = 0.32
_MAX_SIDE_INCHES = 24.0  # 3600 pixels; beyond it the cells shrink instead
_MAX_FONT_POINTS = 10.0
_MIN_FONT_POINTS = 5.0
_LOG_FLOOR = 1e-4
"""The weakest attention that the log scale tells apart; weaker ones and zeros have the same colour."""
_MAX_LABEL_CHARACTERS = 30
# Fonts that come with matplotlib and hold no letters for these code points: boxes, and mathematics in codes of its own.
_FONTS_WITHOUT_TEXT = ("Last Resort", "STIXNonUnicode", "STIXSize", "cm")


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
    path = _checked_path(path)
    figure = attention_figure(attention, src_tokens, trg_tokens, scale=scale, title=title, axes_names=axes_names)
    save_figure(figure, path)
    return "" if path.suffix.lower() == ".svg" else missing_characters([*src_tokens, *trg_tokens, title or ""])


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
    from matplotlib.colors import LogNorm, Normalize
    from matplotlib.figure import Figure

    weights = np.asarray(attention, dtype=float)  # [trg_len, src_len]
    if weights.shape != (len(trg_tokens), len(src_tokens)) or weights.size == 0:
        n_tokens = f"{len(trg_tokens)} target and {len(src_tokens)} source tokens"
        raise ValueError(f"attention of shape {weights.shape} does not fit {n_tokens}")
    if not np.isfinite(weights).all() or weights.min() < 0:
        raise ValueError("attention weights must be finite and not negative")

    n_rows, n_columns = weights.shape
    cell = min(_CELL_INCHES, _MAX_SIDE_INCHES / max(n_rows, n_columns))
    font_points = min(_MAX_FONT_POINTS, max(_MIN_FONT_POINTS, 0.6 * cell * 72))
    # Constrained layout takes the room of labels, title and colour bar from the figure, so that is added here.
    longest_src, longest_trg = (
        min(_MAX_LABEL_CHARACTERS, max(map(len, tokens))) * font_points * 0.65 / 72
        for tokens in (src_tokens, trg_tokens)
    )
    width, height = max(n_columns * cell, 1.5) + longest_trg + 1.3, max(n_rows * cell, 1.5) + longest_src + 0.9
    figure = Figure(figsize=(width, height), dpi=_DPI, layout="constrained")
    axes = figure.add_subplot()

    top = max(float(weights.max()), _LOG_FLOOR * 10)
    norm = LogNorm(_LOG_FLOOR, top) if scale == "log" else Normalize(0.0, top)
    shown = np.maximum(weights, _LOG_FLOOR) if scale == "log" else weights
    # "rgba" colours the cells, not the pixels: the same picture in a fraction of the time.
    image = axes.imshow(
        shown, cmap="Blues", norm=norm, aspect="equal", interpolation="nearest", interpolation_stage="rgba"
    )
    # A bar of the same breadth beside a small and a large map.
    bar_share, bar_aspect = min(0.05, 0.35 / width), max(20.0, height / 0.35)
    figure.colorbar(image, ax=axes, label="attention", shrink=0.9, fraction=bar_share, aspect=bar_aspect)

    families = _font_families([*src_tokens, *trg_tokens, title or ""])
    # Where cells are narrower than the smallest readable letters, only every n-th token is named.
    stride = max(1, int(np.ceil(_MIN_FONT_POINTS * 1.2 / (cell * 72))))
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    axes.set_xticks(range(0, n_columns, stride), [_label(token) for token in src_tokens[::stride]])
    axes.set_yticks(range(0, n_rows, stride), [_label(token) for token in trg_tokens[::stride]])
    axes.set_xlabel(axes_names[0], fontsize=font_points)
    axes.set_ylabel(axes_names[1], fontsize=font_points)
    axes.tick_params(length=0)
    for text in axes.get_xticklabels():
        text.set(rotation=90, fontsize=font_points, family=families, parse_math=False)
    for text in axes.get_yticklabels():
        text.set(fontsize=font_points, family=families, parse_math=False)
    # White lines between the cells; on very small cells they would cover the colours.
    if stride == 1:
        axes.set_xticks(np.arange(-0.5, n_columns), minor=True)
        axes.set_yticks(np.arange(-0.5, n_rows), minor=True)
        axes.grid(which="minor", color="white", linewidth=0.5)
        axes.tick_params(which="minor", length=0)
    if title:
        figure.suptitle(_printable(title), family=families, parse_math=False, fontsize=_MAX_FONT_POINTS + 1)
    return figure


def attention_grid(
    maps: Sequence[tuple[str, ArrayLike]],
    n_columns: int,
    path: str | Path,
    *,
    scale: Scale = "linear",
    title: str = "",
    tokens: tuple[Sequence[str], Sequence[str]] = ((), ()),
    axes_names: tuple[str, str] = ("", ""),
) -> str:
    """Draws many maps, each under its name, `n_columns` in a row, to a file; all share one colour scale.

    tokens: of the columns and of the rows of every map; they stand below and beside the outer maps, if they are few
    enough to be read there.

    Returns: the characters that no installed font can draw, as `attention_heatmap`.

    Raises:
        RequestError: another suffix, or a file that cannot be written.
    """
    path = _checked_path(path)
    figure = attention_grid_figure(maps, n_columns, scale=scale, title=title, tokens=tokens, axes_names=axes_names)
    save_figure(figure, path)
    return "" if path.suffix.lower() == ".svg" else missing_characters([*tokens[0], *tokens[1], title])


def attention_grid_figure(
    maps: Sequence[tuple[str, ArrayLike]],
    n_columns: int,
    *,
    scale: Scale = "linear",
    title: str = "",
    tokens: tuple[Sequence[str], Sequence[str]] = ((), ()),
    axes_names: tuple[str, str] = ("", ""),
) -> Figure:
    """The figure of `attention_grid`, not yet in a file."""
    from matplotlib.colors import LogNorm, Normalize
    from matplotlib.figure import Figure

    n_rows = -(-len(maps) // n_columns)
    figure = Figure(figsize=(1.6 + 1.5 * n_columns, 0.9 + 1.7 * n_rows), dpi=_DPI, layout="constrained")
    every = figure.subplots(n_rows, n_columns, squeeze=False)
    top = max(float(np.max(np.asarray(attention, dtype=float))) for _, attention in maps)
    top = max(top, _LOG_FLOOR * 10)
    norm = LogNorm(_LOG_FLOOR, top) if scale == "log" else Normalize(0.0, top)
    families = _font_families([*tokens[0], *tokens[1], title])
    for number, (axes, (name, attention)) in enumerate(zip(every.flat, maps, strict=False)):
        weights = np.asarray(attention, dtype=float)
        shown = np.maximum(weights, _LOG_FLOOR) if scale == "log" else weights
        image = axes.imshow(shown, cmap="Blues", norm=norm, aspect="auto", interpolation="nearest")
        axes.set_title(name, fontsize=_MIN_FONT_POINTS + 2)
        is_lowest = number + n_columns >= len(maps)
        _name_ticks(axes.xaxis, tokens[0] if is_lowest else (), families, rotation=90)
        _name_ticks(axes.yaxis, tokens[1] if number % n_columns == 0 else (), families)
    for axes in list(every.flat)[len(maps) :]:
        axes.set_visible(False)
    figure.colorbar(image, ax=every, label="attention", fraction=0.05)
    figure.supxlabel(axes_names[0], fontsize=_MAX_FONT_POINTS)
    figure.supylabel(axes_names[1], fontsize=_MAX_FONT_POINTS)
    if title:
        figure.suptitle(_printable(title), family=families, parse_math=False, fontsize=_MAX_FONT_POINTS)
    return figure


_MOST_SMALL_LABELS = 18  # tokens beside a map of a grid whose letters do not run into each other


def _name_ticks(axis: Axis, tokens: Sequence[str], families: list[str], rotation: float = 0) -> None:
    """Write the tokens beside a small map, if they fit there; no ticks without them."""
    named = tokens if len(tokens) <= _MOST_SMALL_LABELS else ()
    axis.set_ticks(range(len(named)), [_label(token) for token in named])
    axis.set_tick_params(length=0)
    for text in axis.get_ticklabels():
        text.set(fontsize=_MIN_FONT_POINTS, family=families, parse_math=False, rotation=rotation)


def attention_text(
    attention: ArrayLike, columns: Sequence[str], rows: Sequence[str], *, scale: Scale = "linear"
) -> str:
    """Attention weights as shades in a terminal: a line for each row, two characters for each numbered column; then
    what the shades mean, and the tokens of the columns.
    """
    from rich.cells import cell_len  # Chinese letters take two places

    weights = np.asarray(attention, dtype=float)
    top = max(float(weights.max()), _LOG_FLOOR * 10)
    names = [_printable(name) for name in rows]
    width = max(map(cell_len, names))
    lines = [" " * width + " " + _column_numbers(len(columns))]
    for name, row in zip(names, weights, strict=True):
        shades = "".join(_shade(float(weight), top, scale) * 2 for weight in row)
        lines.append(name + " " * (width - cell_len(name) + 1) + shades)
    lines += ["", _shade_key(top, scale)]
    lines += [" ".join(f"{number} {_printable(token)}" for number, token in enumerate(columns, start=1))]
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
    save_figure(learning_curve_figure(points, x_label=x_label, y_label=y_label), path)


def learning_curve_figure(
    points: Mapping[str, Sequence[tuple[float, float]]],
    *,
    x_label: str = "training time (minutes)",
    y_label: str = "BLEU",
) -> Figure:
    """The figure of `learning_curve`, not yet in a file."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 4.5), dpi=_DPI, layout="constrained")
    axes = figure.add_subplot()
    families = _font_families([*points, x_label, y_label])
    # Ten colours, then the same ones with another marker: the curves stay apart, also in grey print.
    markers = "os^Dvx+P*<"
    for number, (name, curve) in enumerate(points.items()):
        line = (axes.plot([x for x, _ in curve], [y for _, y in curve]))[0]
        line.set(color=f"C{number % 10}", marker=markers[(number + number // 10) % 10], markersize=4, linewidth=1.5)
        line.set_label(_printable(name))
    axes.set_xlabel(x_label, family=families)
    axes.set_ylabel(y_label, family=families)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    if points:
        # Lines given by hand: matplotlib would leave out a name that begins with an underscore.
        legend = axes.legend(axes.lines, [_printable(name) for name in points], frameon=False)
        for text in legend.get_texts():
            text.set(family=families, parse_math=False)
    return figure


def missing_characters(texts: Sequence[str]) -> str:
    """The characters of these texts, each once, that no font known to matplotlib can draw."""
    return "".join(map(chr, _choose_fonts(texts)[1]))


def _font_families(texts: Sequence[str]) -> list[str]:
    """matplotlib's own font, then the installed ones that hold what it lacks; glyphs are looked up in this order."""
    return _choose_fonts(texts)[0]


def _choose_fonts(texts: Sequence[str]) -> tuple[list[str], list[int]]:
    """Font families that together draw the texts, and the code points that none of them has."""
    from matplotlib.font_manager import FontProperties, findfont, fontManager, get_font

    default = FontProperties().get_family()
    needed = {ord(character) for text in texts for character in _label(text)}
    needed -= get_font(findfont(FontProperties(family=default))).get_charmap().keys()
    families = list(default)
    if not needed:
        return families, []
    # Regular upright faces first in each family: one face stands for it. Sans before serif reads better in small print.
    faces = sorted(fontManager.ttflist, key=lambda face: ("Sans" not in face.name, face.style != "normal", face.name))
    tried = set(families)
    for face in faces:
        if not needed:
            break
        if face.name in tried or face.name.startswith(_FONTS_WITHOUT_TEXT):
            continue
        tried.add(face.name)
        try:
            found = needed & get_font(face.fname).get_charmap().keys()
        except (OSError, RuntimeError):  # a damaged or removed font file is no reason to draw nothing
            continue
        if found:
            families.append(face.name)
            needed -= found
    return families, sorted(needed)


def _label(token: str) -> str:
    """A token as an axis label: printable, and cut where it would take the room of the picture."""
    text = _printable(token)
    return text if len(text) <= _MAX_LABEL_CHARACTERS else text[: _MAX_LABEL_CHARACTERS - 1] + "…"


def _printable(text: str) -> str:
    """Control and format characters as U+FFFD: a line end would break a label, a NUL makes an SVG unreadable."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text)


def check_picture(path: str | Path) -> None:
    """Raises: RequestError for a picture that could not be written: another suffix, or no such folder."""
    folder = _checked_path(path).parent
    if not folder.is_dir():
        raise RequestError(f"{path}: there is no folder {folder}")


def _checked_path(path: str | Path) -> Path:
    path = Path(path)
    if path.suffix.lower() not in _SUFFIXES:
        raise RequestError(f"{path}: expected a file name ending in one of {', '.join(_SUFFIXES)}")
    return path


def save_figure(figure: Figure, path: str | Path) -> None:
    """Writes a figure to a file, whole or not at all; its suffix says in which format.

    Raises:
        RequestError: another suffix, or a file that cannot be written.
    """
    import warnings

    from matplotlib import rc_context

    path = _checked_path(path)
    with warnings.catch_warnings(), rc_context({"svg.fonttype": "none", "svg.hashsalt": "mtkit"}):
        # One warning for each missing glyph and drawing pass; missing_characters() tells once.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        with open_output(path) as stream:
            if path.suffix.lower() == ".svg":
                # The margin is for text that the viewer's font sets wider than the one it was measured with.
                figure.savefig(stream, format="svg", bbox_inches="tight", pad_inches=0.3, metadata={"Date": None})
            else:
                figure.savefig(stream, format=path.suffix[1:].lower())
