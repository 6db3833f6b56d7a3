"""Tables of results: drawn on a terminal, columns with blanks between in a pipe or a file."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence

from mtkit.text.lines import print_text

Rows = Sequence[Sequence[str]]
"""The first is the header."""


def print_table(rows: Rows, *, right: Collection[int] = (), title: str = "") -> None:
    """Print to stdout.

    Args:
        right: numbers of the columns whose cells stand to the right.
        title: above the table, on a terminal alone.
    """
    if not sys.stdout.isatty():
        print_text("\n".join(aligned(rows, right)))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    # Text: what a cell says is no markup.
    table = Table(title=Text(title) if title else None)
    header, *body = rows
    for number, name in enumerate(header):
        table.add_column(Text(name), justify="right" if number in right else "left")
    for row in body:
        table.add_row(*map(Text, row))
    Console().print(table)


def aligned(rows: Rows, right: Collection[int] = ()) -> list[str]:
    """A line for each row, columns set off by two blanks or more; Chinese letters take two places."""
    from rich.cells import cell_len

    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = []
        for number, (cell, width) in enumerate(zip(row, widths, strict=True)):
            blanks = " " * (width - cell_len(cell))
            cells.append(blanks + cell if number in right else cell + blanks)
        lines.append("  ".join(cells).rstrip())
    return lines
