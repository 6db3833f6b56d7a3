"""mtkit average"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mtkit.errors import RequestError
from mtkit.text.lines import print_text


def average(
    run: Annotated[Path, typer.Argument(help="Folder that mtkit train wrote.")],
    last: Annotated[int, typer.Option(min=2, help="Average this many of the newest checkpoints.")] = 5,
    updates: Annotated[
        str | None,
        typer.Option(metavar="U,U,…", help="Average the checkpoints of these updates instead."),
    ] = None,
    output: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of the new checkpoint. Default: average-FIRST-LAST.")
    ] = None,
) -> None:
    """Average the weights of checkpoints of one run into a new one; prints its folder, which is a model.

    The checkpoints stay as they are, and so does what the run calls its best.

    Example: mtkit average runs/multi30k-transformer --last 5
    """
    from mtkit.checkpoint import list_updates, save_average

    if updates is None:
        chosen = list_updates(run)[-last:]
        if len(chosen) < last:
            raise RequestError(
                f"{run}: holds {len(chosen)} checkpoints, fewer than --last {last}; train.keep keeps more"
            )
    else:
        chosen = _numbers(updates)
    print_text(str(save_average(run, chosen, output)))


def _numbers(text: str) -> list[int]:
    parts = text.split(",")
    if not all(part.strip().isdecimal() for part in parts):
        raise RequestError(f"--updates: expected numbers with commas between, got '{text}'")
    return sorted({int(part) for part in parts})
