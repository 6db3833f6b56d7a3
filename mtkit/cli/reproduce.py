"""mtkit reproduce"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from mtkit.errors import RequestError
from mtkit.text.lines import print_text


def reproduce(
    name: Annotated[
        str | None, typer.Argument(help="the study, such as table-1-1; without one, all are listed")
    ] = None,
    scale: Annotated[
        Literal["toy", "multi30k", "paper"],
        typer.Option(
            help="toy: the embedded grammar, minutes; multi30k: real text from --data, hours; paper: the published "
            "sizes, on GPUs"
        ),
    ] = "toy",
    data: Annotated[
        Path | None, typer.Option(metavar="ROOT", help="folder of the corpus (scales multi30k and paper)")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="override a recipe key in every training, such as another corpus's files"
        ),
    ] = None,
    match: Annotated[
        Literal["params", "time"], typer.Option(help="what the contestants of the study league have in common")
    ] = "params",
    seeds: Annotated[int, typer.Option(min=1, help="train each model with so many seeds")] = 1,
    budget_minutes: Annotated[
        float | None, typer.Option(min=0.1, metavar="M", help="minutes for all missing trainings together")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="folder of models and reports; default: runs/reproduce/SCALE")
    ] = None,
    recipes: Annotated[Path | None, typer.Option(help="folder of the recipes; default: mtkit's own")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N")] = "auto",
    yes: Annotated[bool, typer.Option("--yes", help="start the trainings of --scale paper")] = False,
) -> None:
    """Reproduce a table or figure of the textbook chapter: train what is missing, measure, judge, report.

    Models are shared between studies, and a study that was stopped goes on where it was: give the command again. The
    report is Markdown, one HTML file, PNG, CSV and JSON, in OUTPUT/NAME; OUTPUT/verdicts.md collects the verdicts of
    all studies there.

    Examples:

      mtkit reproduce table-1-1

      mtkit reproduce league --scale multi30k --data corpora/multi30k --budget-minutes 120
    """
    from mtkit.reproduce import study

    if name is None:
        width = max(map(len, study.available()))
        print_text("\n".join(f"{each:<{width}}  {study.load(each).TITLE}" for each in study.available()))
        return
    from mtkit.reproduce.conduct import check_scale, conduct
    from mtkit.reproduce.laboratory import Laboratory, recipes_folder

    settings = study.Settings(scale, match)
    needs_data = scale == "multi30k" and bool(study.load(name).trainings(settings))
    if data is not None and scale == "toy":
        raise RequestError("--data: the toy scale makes its own text; choose --scale multi30k or paper")
    overrides = list(set_ or ())
    if data is not None:
        overrides.insert(0, f"data.root={json.dumps(str(data))}")  # quoted: a folder may be called 2016 or a: b
    elif needs_data and not any(each.startswith("data.") for each in overrides):
        raise RequestError("--data: is needed by --scale multi30k; name the folder of the corpus")
    if match == "time" and name != "league":
        raise RequestError(f"--match: is for the study league; {name} compares its systems as their recipes have them")
    if match == "time" and scale == "paper":
        raise RequestError("--match: the recipes of --scale paper train as the papers did, each for its own time")
    laboratory = Laboratory(
        settings,
        output or Path("runs") / "reproduce" / scale,
        recipes or recipes_folder(),
        seeds=seeds,
        overrides=overrides,
        device=device,
    )
    check_scale(laboratory, name, agreed=yes)
    conducted = conduct(name, laboratory, budget_minutes=budget_minutes)
    if conducted.report is None:
        raise typer.Exit(conducted.exit_status)
    print_text(str(conducted.report))
