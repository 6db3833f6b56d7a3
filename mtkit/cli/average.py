"""mtkit average"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mtkit.errors import RequestError
from mtkit.text.lines import print_text

_LAST = 5  # checkpoints, as Transformer base averages (Vaswani et al. 2017, §6.1)


def average(
    run: Annotated[Path, typer.Argument(help="Folder that mtkit train wrote.")],
    last: Annotated[
        int | None,
        typer.Option(min=2, help="Average this many of the newest checkpoints. Default: 5, or all if fewer are kept."),
    ] = None,
    updates: Annotated[
        str | None,
        typer.Option(metavar="U,U,…", help="Average the checkpoints of these updates instead."),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Name of the new checkpoint, average…; one of that name is replaced. Default: average-FIRST-LAST.",
        ),
    ] = None,
) -> None:
    """Average the weights of checkpoints of one run into a new one; prints its folder, which is a model.

    The checkpoints stay as they are, and so does what the run calls its best.

    Examples:

      mtkit average runs/multi30k-transformer --last 3

      mtkit average runs/multi30k-transformer --updates 8000,8500 --output average

      mtkit translate runs/multi30k-transformer/checkpoints/average test.en
    """
    from mtkit.checkpoint import check_run, list_updates, save_average

    if last is not None and updates is not None:
        raise RequestError(f"--last {last} and --updates {updates} contradict each other")
    check_run(run)
    if updates is None:
        chosen = list_updates(run)[-(last or _LAST) :]
        if len(chosen) < (last or 2):
            wanted = f"fewer than --last {last}; ask for fewer, or" if last else "an average takes two;"
            count = f"{len(chosen)} checkpoint{'s' if len(chosen) != 1 else ''}"
            raise RequestError(f"{run}: holds {count}, {wanted} train with a higher train.keep")
    else:
        chosen = _numbers(updates)
    print_text(str(save_average(run, chosen, output)))


def _numbers(text: str) -> list[int]:
    parts = text.split(",")
    if not all(part.strip().isdecimal() for part in parts):
        raise RequestError(f"--updates: expected numbers with commas between, got '{text}'")
    return sorted({int(part) for part in parts})
