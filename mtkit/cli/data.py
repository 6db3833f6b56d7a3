"""mtkit data: look at a bitext, make one."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from mtkit.cli.tables import Rows, print_table
from mtkit.errors import RequestError
from mtkit.text.lines import open_output, print_text, write_line

if TYPE_CHECKING:
    from mtkit.data.sources import Bitext
    from mtkit.data.stats import BitextStats

data_app = typer.Typer(
    no_args_is_help=True,
    help="Look at a bitext, or make one.\n\nExample: mtkit data stats corpus/train.en.gz corpus/train.de.gz",
)


@data_app.command("stats")
def stats(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="Source-side file, or a recipe's source such as corpus/train.")
    ],
    target: Annotated[str | None, typer.Argument(metavar="[TARGET]", help="Target-side file.")] = None,
    src_lang: Annotated[
        str | None, typer.Option(metavar="CODE", help="Source language: file ending or key. Needed without TARGET.")
    ] = None,
    trg_lang: Annotated[str | None, typer.Option(metavar="CODE", help="Target language, likewise.")] = None,
) -> None:
    """Count a bitext: pairs, words, characters, lengths, empty, duplicate and doubtful pairs.

    A table on a terminal, plain columns in a pipe. Words are what stands between white space.

    Examples:

      mtkit data stats train.en.gz train.de.gz

      mtkit data stats corpus/train --src-lang en --trg-lang de

      mtkit data stats synthetic:train,pairs=5000
    """
    from tqdm import tqdm

    from mtkit.data.stats import measure

    bitext = _open(source, target, src_lang, trg_lang)
    with tqdm(desc="reading", unit=" pairs", unit_scale=True, file=sys.stderr, disable=None) as bar:

        def show(pairs: int) -> None:
            bar.update(pairs - bar.n)

        measured = measure(bitext, progress=show)
    print_table(_overview(measured), right={1, 2}, title=bitext.name)
    print_text("")
    print_table(_histogram(measured), right={1, 2})


@data_app.command("synth")
def synth(
    pairs: Annotated[int, typer.Option("--pairs", "-n", metavar="N", min=1, help="Number of pairs.")],
    split: Annotated[
        Literal["train", "dev", "test"], typer.Option(help="Which part; the parts share no sentence.")
    ] = "train",
    min_words: Annotated[int, typer.Option(metavar="N", min=2, help="Shortest English sentence, in words.")] = 3,
    max_words: Annotated[int, typer.Option(metavar="N", min=2, help="Longest English sentence, in words.")] = 20,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Another seed gives other sentences.")] = 1,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="PREFIX", help="Write PREFIX.en and PREFIX.de. Default: TSV on stdout."),
    ] = None,
    alignments: Annotated[
        bool,
        typer.Option("--alignments", help="Also PREFIX.align (a third column in TSV): source-target words, from 0."),
    ] = False,
) -> None:
    """Make English-German sentence pairs from the embedded grammar, with gold word alignments.

    The same options always give the same pairs. Alignments count words with , . ? split off.

    Examples:

      mtkit data synth --split train --pairs 20000 --output toy/train

      mtkit data synth --split test --pairs 5 --min-words 20 --max-words 40 --alignments
    """
    from mtkit.text.grammar import generate

    made = generate(split=split, pairs=pairs, min_words=min_words, max_words=max_words, seed=seed)
    endings = [".en", ".de", *([".align"] if alignments else [])]
    with ExitStack() as stack:
        names = [None] if output is None else [output + ending for ending in endings]
        streams = [stack.enter_context(open_output(name)) for name in names]
        for pair in made:
            links = " ".join(f"{i}-{j}" for i, j in pair.alignment)
            columns = [pair.src, pair.trg, *([links] if alignments else [])]
            lines = ["\t".join(columns)] if output is None else columns
            for stream, line in zip(streams, lines, strict=True):
                write_line(stream, line)
    if output is not None:
        typer.echo(f"{', '.join(str(name) for name in names)}: {pairs:,} pairs", err=True)


def _open(source: str, target: str | None, src_lang: str | None, trg_lang: str | None) -> Bitext:
    """Raises: RequestError when the language codes that SOURCE needs are missing."""
    from mtkit.data.sources import needs_languages, open_bitext
    from mtkit.recipe import FilePair

    if target is not None:
        return open_bitext(FilePair(src=source, trg=target), src="", trg="", root=".")
    if needs_languages(source) and (src_lang is None or trg_lang is None):
        raise RequestError(f"{source}: give the target file too, or --src-lang and --trg-lang")
    default_src, default_trg = ("en", "de") if source.startswith("synthetic:") else ("", "")
    return open_bitext(source, src=src_lang or default_src, trg=trg_lang or default_trg, root=".")


def _overview(measured: BitextStats) -> Rows:
    src, trg, pairs = measured.src, measured.trg, measured.pairs
    ratio = f"{trg.words / src.words:.2f}" if src.words else "-"
    return [
        ("", "source", "target"),
        ("lines", f"{pairs:,}", f"{pairs:,}"),
        ("words", f"{src.words:,}", f"{trg.words:,}"),
        ("characters", f"{src.characters:,}", f"{trg.characters:,}"),
        ("words a line", f"{src.words / pairs:.1f}", f"{trg.words / pairs:.1f}"),
        ("longest line in words", f"{src.longest:,}", f"{trg.longest:,}"),
        ("empty lines", f"{src.empty:,}", f"{trg.empty:,}"),
        ("target words per source word", "", ratio),
        ("pairs with an empty side", "", f"{measured.empty:,}"),
        ("pairs with one side over twice as long", "", f"{measured.unequal:,}"),
        ("pairs with the same text on both sides", "", f"{measured.identical:,}"),
        ("duplicate pairs", "", f"{measured.duplicates:,}"),
        ("lines with invalid UTF-8", "", f"{measured.invalid:,}"),
    ]


def _histogram(measured: BitextStats) -> Rows:
    """Lines by length; a line without a word is in the first bucket."""
    from mtkit.data.stats import BUCKETS

    starts = [0, *(bucket + 1 for bucket in BUCKETS)]
    names = [*(f"{start}-{end}" for start, end in zip(starts, BUCKETS, strict=False)), f"{starts[-1]} and more"]
    counts = zip(names, measured.src.histogram, measured.trg.histogram, strict=True)
    rows = [(name, f"{n_src:,}", f"{n_trg:,}") for name, n_src, n_trg in counts if n_src or n_trg]
    return [("line length in words", "source", "target"), *rows]
