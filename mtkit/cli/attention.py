"""mtkit attention"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from mtkit.cli.messages import warn
from mtkit.errors import RequestError
from mtkit.text.lines import print_text


def attention(
    model: Annotated[Path, typer.Argument(help="folder of a run, or one of its checkpoints")],
    source: Annotated[str, typer.Argument(help="a sentence")],
    target: Annotated[str | None, typer.Argument(help="its translation; default: the model's own")] = None,
    part: Annotated[
        Literal["cross", "encoder", "decoder"],
        typer.Option(help="of a Transformer: attention over the source, or self-attention of one side"),
    ] = "cross",
    layer: Annotated[
        int | None, typer.Option(min=1, help="from 1; default: the last but one, which follows word alignments best")
    ] = None,
    head: Annotated[int | None, typer.Option(min=1, help="from 1; default: the mean over the heads")] = None,
    every: Annotated[bool, typer.Option("--all", help="a grid of all layers and heads; needs --output")] = False,
    scale: Annotated[
        Literal["linear", "log"], typer.Option(help="linear stresses dominant weights, log shows weak ones")
    ] = "linear",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help=".png, .svg or .pdf; default: shades in the terminal")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N")] = "auto",
) -> None:
    """Draw what a model looks at: rows are target tokens, columns source tokens.

    Examples:

      mtkit attention runs/toy-rnnsearch 'The old dog sees the cat.'

      mtkit attention runs/toy-transformer 'The old dog sees the cat.' --part encoder --all --output heads.png
    """
    from mtkit.evaluate.pictures import check_picture
    from mtkit.evaluate.plots import attention_grid, attention_heatmap, attention_text
    from mtkit.reproduce.attention_view import view_attention

    if every and output is None:
        raise RequestError("--all: a grid is a picture; name its file with --output")
    if every and (layer or head):
        raise RequestError("--all: shows every layer and head; leave --layer and --head out")
    if output is not None:
        check_picture(output)
    view = view_attention(model, source, target, part=part, layer=layer, head=head, every=every, device=device)
    if output is None:
        title, weights = view.maps[0]
        print_text(f"{title}: {view.target}\n")
        text = attention_text(weights.numpy(), view.columns, view.rows, scale=scale)
        print_text(text)
        _warn_if_wide(text)
        return
    if every:
        maps = [(name, each.numpy()) for name, each in view.maps]
        heading, tokens = f"{source} → {view.target}", (view.columns, view.rows)
        undrawn = attention_grid(
            maps, view.n_heads, output, scale=scale, title=heading, tokens=tokens, axes_names=view.axes_names
        )
    else:
        title, weights = view.maps[0]
        undrawn = attention_heatmap(
            weights.numpy(), view.columns, view.rows, output, scale=scale, title=title, axes_names=view.axes_names
        )
    if undrawn:
        warn(
            f"no font here has the characters {undrawn}: boxes stand in their place. Install a font that has them, or "
            "draw an .svg, whose text is drawn with the viewer's fonts"
        )
    print_text(str(output))


def _warn_if_wide(text: str) -> None:
    """Tell that the rows of shades are broken by the terminal."""
    from rich.cells import cell_len

    if not sys.stdout.isatty():
        return
    rows = text.partition("\n\n")[0].splitlines()
    if max(map(cell_len, rows)) > shutil.get_terminal_size().columns:
        warn("the map is wider than the terminal, which breaks its rows; --output map.png draws a picture")
