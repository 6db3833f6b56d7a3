"""mtkit info"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from mtkit.text.lines import print_text


def info(
    model: Annotated[Path, typer.Argument(help="folder of a run, or one of its checkpoints")],
    format: Annotated[Literal["text", "json"], typer.Option(help="text or json")] = "text",
) -> None:
    """What a model is: backend, sizes, vocabulary, training state, dev scores.

    Example: mtkit info runs/toy-transformer
    """
    from mtkit.reproduce.description import describe

    facts = describe(model)
    if format == "json":
        print_text(json.dumps(facts, indent=2, ensure_ascii=False))
        return
    width = max(len(name) for name in facts)
    print_text("\n".join(f"{name:<{width}}  {value}" for name, value in facts.items()))
