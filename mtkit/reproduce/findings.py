"""What a study has found: tables, figures and verdicts, before anything is drawn or written."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from mtkit.reproduce.verdict import Verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Measured(NamedTuple):
    """A figure of our own, over the seeds that it was measured with."""

    values: tuple[float, ...]  # one for each seed
    half_width: float | None = None  # of the 95% bootstrap interval; of several seeds the mean half width
    decimals: int = 2

    @property
    def mean(self) -> float:
        return statistics.fmean(self.values)

    @property
    def deviation(self) -> float | None:
        """Standard deviation over the seeds; None for a single one."""
        return statistics.stdev(self.values) if len(self.values) > 1 else None

    def __str__(self) -> str:
        """`26.31 ± 0.42 (sd 0.11)`: mean, half of the interval, deviation over the seeds."""
        text = f"{self.mean:.{self.decimals}f}"
        if self.half_width is not None:
            text += f" ± {self.half_width:.{self.decimals}f}"
        if self.deviation is not None:
            text += f" (sd {self.deviation:.{self.decimals}f})"
        return text


Cell = str | int | float | Measured | None


class Table(NamedTuple):
    """Rows of cells under a header; floats that are no `Measured` have their column's decimals, or else the table's."""

    name: str  # of its CSV file
    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""
    decimals: int = 2
    column_decimals: Mapping[str, int] = {}  # by the column's name in the header

    def shown_rows(self) -> list[list[str]]:
        """The rows as a reader sees them."""
        decimals = [self.column_decimals.get(column, self.decimals) for column in self.header]
        return [[_shown(cell, places) for cell, places in zip(row, decimals, strict=True)] for row in self.rows]


def _shown(cell: Cell, decimals: int) -> str:
    if cell is None:
        return "–"
    if isinstance(cell, (bool, str, Measured)):
        return str(cell)
    return f"{cell:,}" if isinstance(cell, int) else f"{cell:,.{decimals}f}"


class Picture(NamedTuple):
    """A figure and what it shows."""

    name: str  # of its PNG file
    title: str
    figure: Figure
    caption: str = ""


class Findings(NamedTuple):
    """All that a study has found."""

    verdicts: Sequence[Verdict]
    tables: Sequence[Table]
    pictures: Sequence[Picture] = ()
    notes: Sequence[str] = ()  # what a reader must know to read the figures rightly, a paragraph each
