"""mtkit info, mtkit models"""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from mtkit.cli.tables import print_table
from mtkit.text.lines import print_text

if TYPE_CHECKING:
    from mtkit.reproduce.description import PresetFacts, SettingFacts


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


def models(
    name: Annotated[str | None, typer.Argument(help="Only this backend, with all its settings.")] = None,
    vocab_size: Annotated[int, typer.Option(min=8, help="Vocabulary of each side, for the parameters.")] = 37000,
    format: Annotated[Literal["text", "json"], typer.Option(help="text or json")] = "text",
) -> None:
    """Every backend and preset: paper, parameters, attention, what decoding must keep.

    The state is what incremental decoding keeps of the target side, in numbers (four bytes each in fp32): as much for
    every length, or so many for each token. A recipe names a backend as model.type and a preset as model.preset.

    Example: mtkit models transformer --vocab-size 8000
    """
    from mtkit.reproduce.description import describe_presets, describe_settings

    facts = describe_presets(vocab_size, None if name is None else [name])
    if format == "json":
        presets: list[dict[str, Any]] = [{**each._asdict(), "paper": each.paper._asdict()} for each in facts]
        backends = list(dict.fromkeys(each.backend for each in facts))
        settings = {backend: [each._asdict() for each in describe_settings(backend)] for backend in backends}
        print_text(json.dumps({"presets": presets, "settings": settings}, indent=2, ensure_ascii=False))
        return
    _print_table(facts)
    if name is not None:
        _print_settings(describe_settings(name))


def _print_table(facts: list[PresetFacts]) -> None:
    rows = [("backend", "preset", "year", "parameters", "attention", "state of a sentence", "paper")]
    for each in facts:
        grows = f"{each.state_numbers_per_token:,} a token"
        rows.append(
            (
                each.backend,
                each.preset,
                str(each.paper.year),
                f"{each.parameters:,}",
                "yes" if each.attention else "no",
                grows if each.state_numbers_per_token else f"{each.state_numbers:,}",
                f"{each.paper.authors.split(',')[0]} et al., {each.paper.url}",
            )
        )
    print_table(rows, right={3, 5})


def _print_settings(settings: list[SettingFacts]) -> None:
    from mtkit.reproduce.explanation import shown_value

    rows = [("setting", "default", "values", "what")]
    for each in settings:
        # Text beside the other columns, as wide as a screen: long descriptions take several lines.
        first, *more = textwrap.wrap(each.description, 60, break_on_hyphens=False) or [""]
        rows.append((each.key, shown_value(each.default), each.values, first))
        rows += [("", "", "", line) for line in more]
    print_text("")
    print_table(rows)
