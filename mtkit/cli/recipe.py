"""`mtkit recipe`: look at recipes before anything is trained from them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from mtkit.errors import RecipeError, RequestError

if TYPE_CHECKING:
    from mtkit.recipe import Recipe

recipe_app = typer.Typer(no_args_is_help=True, help="Show, check and explain recipes.")

RecipeFile = Annotated[str, typer.Argument(metavar="RECIPE", help="Recipe file (YAML).")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a key, as in train.updates=100; may be repeated."),
]


@recipe_app.command("show")
def show(recipe: RecipeFile, overrides: Overrides = None) -> None:
    """Print the whole resolved recipe: every key with its value, as training would use it.

    What extends, presets, defaults and --set contribute is spelled out, and the output is a recipe itself.

    Example: mtkit recipe show recipes/toy/transformer.yaml --set train.updates=100
    """
    from mtkit.recipe import dump_recipe

    _print(dump_recipe(_load(recipe, overrides)))


@recipe_app.command("check")
def check(recipe: RecipeFile, overrides: Overrides = None) -> None:
    """Check a recipe: its keys and values, the model's sizes, and that its data is there, line by line. Trains nothing.

    Example: mtkit recipe check recipes/multi30k/transformer.yaml --set data.root=corpora/multi30k
    """
    from mtkit.data.sources import check_aligned, open_bitext
    from mtkit.train.experiment import check_recipe

    loaded = _load(recipe, overrides)
    mistakes = []
    try:
        check_recipe(loaded)
    except RequestError as error:
        mistakes.append(f"{recipe}: {error}")
    for key, source in loaded.data.sources:
        try:
            check_aligned(open_bitext(source, src=loaded.data.src, trg=loaded.data.trg, root=loaded.data.root or ""))
        except RequestError as error:
            mistakes.append(f"{recipe}: {key}: {error}")
    if mistakes:
        raise RecipeError("\n".join(mistakes))
    _print(f"{loaded.name}: ok\n")


@recipe_app.command("explain")
def explain(
    recipe: RecipeFile,
    overrides: Overrides = None,
    every: Annotated[bool, typer.Option("--all", help="Also the settings that are left at their defaults.")] = False,
    format: Annotated[Literal["text", "json"], typer.Option(help="text or json")] = "text",
) -> None:
    """Tell where each setting comes from, and what the published system has.

    A recipe that names its paper (`paper: vaswani2017-base`) is compared with it: = as in the paper, with the section,
    or ≠ with the paper's value; below the table stand the reasons.

    Example: mtkit recipe explain recipes/wmt14/transformer_base.yaml
    """
    from mtkit.reproduce.explanation import as_json, render
    from mtkit.reproduce.explanation import explain as explain_recipe

    explanation = explain_recipe(recipe, overrides or (), every=every)
    text = render(explanation) if format == "text" else json.dumps(as_json(explanation), indent=2, ensure_ascii=False)
    _print(text + "\n")


@recipe_app.command("schema")
def schema() -> None:
    """Print the JSON Schema of recipes, from which editors complete and explain their keys.

    Example: mtkit recipe schema > recipe.schema.json
    """
    from mtkit.models import available, load
    from mtkit.recipe import BackendSchema, recipe_schema

    backends = [BackendSchema(name, load(name).Config, tuple(load(name).PRESETS)) for name in available()]
    _print(json.dumps(recipe_schema(backends), indent=2, ensure_ascii=False) + "\n")


def _load(recipe: str, overrides: list[str] | None) -> Recipe:
    from mtkit.models import parse_config
    from mtkit.recipe import load_recipe

    return load_recipe(recipe, overrides or (), parse_model=parse_config)


def _print(text: str) -> None:
    """Text to standard output as UTF-8 with LF, whatever the locale and the platform."""
    from mtkit.text.lines import open_output

    with open_output(None) as output:
        output.write(text.encode())
