"""mtkit compare"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mtkit.text.lines import print_text


def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN…", help="folders of runs; the first is the baseline")],
    output: Annotated[Path, typer.Option("--output", "-o", help="folder of the report")],
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N")] = "auto",
) -> None:
    """Runs side by side: sizes, times, BLEU with intervals and tests against the first, by length, learning curves.

    The report is Markdown, one HTML file, PNG, CSV and JSON. A run that was not evaluated yet is evaluated first.

    Example: mtkit compare runs/toy-rnnsearch runs/toy-transformer --output comparison
    """
    from mtkit.reproduce.comparison import compare_runs

    print_text(str(compare_runs(runs, output, device=device)))
