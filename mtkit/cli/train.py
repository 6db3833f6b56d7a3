"""mtkit train"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mtkit.text.lines import print_text


def train(
    recipe: Annotated[Path, typer.Argument(help="YAML file of the experiment")],
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="override a recipe key; may be repeated")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="folder of the run; default: runs/NAME")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="insist on continuing a run that is there")] = False,
    restart: Annotated[bool, typer.Option("--restart", help="delete the run that is there and start anew")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N")] = "auto",
) -> None:
    """Train a translator: the whole pipeline from bitext to a model folder.

    A run of the same recipe that stands in the folder already is continued where it stopped.

    Example: mtkit train recipes/multi30k/transformer.yaml --set data.root=corpora/multi30k
    """
    from mtkit.models import parse_config
    from mtkit.recipe import load_recipe
    from mtkit.train.experiment import train as run_training

    loaded = load_recipe(recipe, set_ or (), parse_model=parse_config)
    run = output or Path("runs") / loaded.name
    outcome = run_training(loaded, run, resume=resume, restart=restart, device=device)
    if outcome.interrupted:
        raise typer.Exit(outcome.exit_status)
    print_text(str(run))
