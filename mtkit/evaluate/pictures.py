"""Pictures: fonts for any script, names that are text and never formulas, lines that fit; files by their suffix.

matplotlib is used through its Figure objects alone: no pyplot, so no global state and no window system.
"""

from __future__ import annotations

import functools
import warnings
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from mtkit.errors import RequestError
from mtkit.text.lines import open_output

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI = 150
TITLE_POINTS = 11.0
_SUFFIXES = (".png", ".svg", ".pdf")
_MAX_LABEL_CHARACTERS = 30
_MAX_LINE_CHARACTERS = 500  # more of a small font than the widest picture holds
# Fonts that come with matplotlib and hold no letters for these code points: boxes, and mathematics in codes of its own.
_FONTS_WITHOUT_TEXT = ("Last Resort", "STIXNonUnicode", "STIXSize", "cm")


class Fonts(NamedTuple):
    """Fonts for some texts, and the room that the texts take in them."""

    families: list[str]  # glyphs are looked up in this order
    missing: str  # the characters, each once, that no installed font has

    def style(self) -> dict[str, Any]:
        """Properties of matplotlib's texts. Dollar signs are characters of a name, not the ends of a formula."""
        return {"family": self.families, "parse_math": False}

    def inches(self, text: str, points: float) -> tuple[float, float]:
        """Width and height of one line."""
        from matplotlib.backends.backend_agg import RendererAgg
        from matplotlib.font_manager import FontProperties

        renderer, font = RendererAgg(1, 1, DPI), FontProperties(family=self.families, size=points)
        # A viewer of an SVG may have what is missing here: Chinese letters are an em wide, as the dash is.
        in_viewer = text.translate(dict.fromkeys(map(ord, self.missing), "—"))
        # Letters with ascender and descender: matplotlib sets no line lower than those.
        with _silent_about_glyphs():
            widths, heights, _ = zip(
                *(renderer.get_text_width_height_descent(line, font, False) for line in (text, in_viewer, "lp")),
                strict=True,
            )
        return max(widths[:2]) / DPI, max(heights) / DPI

    def wrap(self, text: str, points: float, width_inches: float, *, most_lines: int = 4) -> list[str]:
        """The lines of a text, broken at spaces where there are any; the last one ends in … where more would follow."""

        def n_fitting(line: str, end: str = "") -> int:
            """How many of its characters fit, with this end; at least one."""
            most = min(len(line), _MAX_LINE_CHARACTERS)
            too_wide = bisect_left(
                range(1, most + 1), True, key=lambda n: self.inches(line[:n] + end, points)[0] > width_inches
            )
            return max(1, too_wide)

        lines: list[str] = []
        rest = text.strip()
        while rest and len(lines) < most_lines:
            n = n_fitting(rest)
            if n < len(rest):
                if len(lines) == most_lines - 1:
                    return [*lines, rest[: n_fitting(rest, "…")].rstrip() + "…"]
                # Scripts without spaces are broken anywhere, and words that would leave most of the line empty.
                space = rest.rfind(" ", 0, n + 1)
                n = space if space > n // 3 else n
            lines.append(rest[:n].rstrip())
            rest = rest[n:].lstrip()
        return lines


def choose_fonts(texts: Iterable[str]) -> Fonts:
    """matplotlib's own font, then the installed ones that hold what it lacks of these texts."""
    from matplotlib.font_manager import FontProperties, findfont, fontManager, get_font

    default = FontProperties().get_family()
    needed = {ord(character) for text in texts for line in text.split("\n") for character in printable(line)}
    needed -= get_font(findfont(FontProperties(family=default))).get_charmap().keys()
    families = list(default)
    if not needed:
        return Fonts(families, "")
    _learn_of_new_fonts()
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
    return Fonts(families, "".join(map(chr, sorted(needed))))


@functools.cache
def _learn_of_new_fonts() -> None:
    """matplotlib keeps its list of fonts from one program to the next: one installed since then is not in it."""
    from matplotlib.font_manager import findSystemFonts, fontManager

    known = {face.fname for face in fontManager.ttflist}
    for file in sorted(set(findSystemFonts()) - known):
        with suppress(OSError, RuntimeError):  # a damaged font file is no reason to draw nothing
            fontManager.addfont(file)


def label(name: str) -> str:
    """A name as an axis label: printable, and cut where it would take the room of the picture."""
    text = printable(name)
    return text if len(text) <= _MAX_LABEL_CHARACTERS else text[: _MAX_LABEL_CHARACTERS - 1] + "…"


def printable(text: str) -> str:
    """Control and format characters as U+FFFD: a line end would break a label, a NUL makes an SVG unreadable."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text)


def check_picture(path: str | Path) -> None:
    """Raises: RequestError for a picture that could not be written: another suffix, or no such folder."""
    folder = checked_path(path).parent
    if not folder.is_dir():
        raise RequestError(f"{path}: there is no folder {folder}")


def checked_path(path: str | Path) -> Path:
    """Raises: RequestError for a suffix that is none of a picture's."""
    path = Path(path)
    if path.suffix.lower() not in _SUFFIXES:
        raise RequestError(f"{path}: expected a file name ending in one of {', '.join(_SUFFIXES)}")
    return path


def save_figure(figure: Figure, path: str | Path) -> None:
    """Writes a figure to a file, whole or not at all; its suffix says in which format.

    Raises:
        RequestError: another suffix, or a file that cannot be written.
    """
    from matplotlib import rc_context

    path = checked_path(path)
    with (
        _silent_about_glyphs(),
        rc_context({"svg.fonttype": "none", "svg.hashsalt": "mtkit"}),
        open_output(path) as stream,
    ):
        if path.suffix.lower() == ".svg":
            # The margin is for text that the viewer's font sets wider than the one it was measured with.
            margin = figure.bbox_inches.padded(0.3)
            figure.savefig(stream, format="svg", bbox_inches=margin, metadata={"Date": None})
        else:
            figure.savefig(stream, format=path.suffix[1:].lower())


@contextmanager
def _silent_about_glyphs() -> Iterator[None]:
    """matplotlib warns of each missing glyph each time; Fonts.missing tells once."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield
