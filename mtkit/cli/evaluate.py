"""mtkit evaluate"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mtkit.text.lines import print_text


def evaluate(
    model: Annotated[Path, typer.Argument(help="folder of a run, or one of its checkpoints")],
    ensemble: Annotated[
        list[Path] | None,
        typer.Option(
            "--ensemble",
            metavar="MODEL",
            help="one more model, as in mtkit translate; may be repeated. The recipe's test sets are the first one's",
        ),
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME", help="only this test set; may be repeated; also: dev")
    ] = None,
    beam: Annotated[int | None, typer.Option(min=1, help="beam size; default: the recipe's")] = None,
    metrics: Annotated[
        str, typer.Option(help="bleu, chrf, chrf++, ter, paper-bleu, paper-bleu-split, separated by commas")
    ] = "bleu,chrf",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="folder; default: evaluation in the run's folder, of a checkpoint evaluation-CHECKPOINT, of an "
            "ensemble evaluation-ensemble",
        ),
    ] = None,
    data_root: Annotated[Path | None, typer.Option(help="folder of the test sets, when they have moved")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N")] = "auto",
) -> None:
    """Translate the recipe's test sets, score them, write translations and a report: scores with 95% bootstrap
    intervals, BLEU by the length of the source, repetition, and what of these the text allows.

    Examples:

      mtkit evaluate runs/multi30k-transformer --set flickr2016

      mtkit evaluate runs/multi30k-transformer --ensemble runs/second --ensemble runs/third
    """
    from mtkit.reproduce.evaluation import evaluate_model

    report = evaluate_model(
        model,
        ensemble=ensemble or (),
        names=set_,
        beam_size=beam,
        metrics=metrics.split(","),
        output=output,
        data_root=data_root,
        device=device,
    )
    print_text(report)
