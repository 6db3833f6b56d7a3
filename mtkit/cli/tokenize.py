"""mtkit tokenize: learn a subword model; text to pieces and back."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Literal

import typer

from mtkit.cli.messages import InvalidLines, report_kept, warn
from mtkit.errors import DataError
from mtkit.text.lines import open_output, read_input, write_line

if TYPE_CHECKING:
    from mtkit.text.tokenizer import Tokenizer

BLOCK_LINES = 2000  # lines that are encoded and written together

tokenize_app = typer.Typer(
    no_args_is_help=True,
    help="Learn a subword model; turn text into pieces or ids, and back.\n\n"
    "Example: mtkit tokenize train --input train.en train.de --output joint.model --kind bpe --size 8000",
)

ModelFile = Annotated[
    Path, typer.Option("--model", "-m", metavar="MODEL", help="Model file from mtkit tokenize train.")
]
TextFile = Annotated[
    str | None, typer.Argument(metavar="[FILE]", help="Text, also compressed; default and '-': standard input.")
]
OutputFile = Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Default: standard output.")]
Strict = Annotated[bool, typer.Option("--strict", help="Stop at invalid UTF-8 instead of replacing it.")]


@tokenize_app.command("train")
def train(
    files: Annotated[
        list[Path],
        typer.Option(
            "--input",
            "-i",
            metavar="FILE...",
            help="Text to learn from, also compressed; several files; '-': standard input.",
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="MODEL", help="The model file to write.")],
    more_files: Annotated[
        list[Path] | None, typer.Argument(metavar="[FILE]...", help="More text, so that --input a.en b.de works.")
    ] = None,
    kind: Annotated[Literal["bpe", "unigram", "char", "word"], typer.Option(help="What a piece is.")] = "bpe",
    size: Annotated[int, typer.Option("--size", metavar="N", min=8, help="Pieces, the four specials included.")] = 8000,
    normalization: Annotated[
        Literal["nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf", "identity"],
        typer.Option(help="Rule applied to all text; _cf also folds case. Only identity keeps U+200C."),
    ] = "nmt_nfkc",
    character_coverage: Annotated[
        float, typer.Option(metavar="X", min=0.98, max=1.0, help="Share of the text's characters that get a piece.")
    ] = 1.0,
    byte_fallback: Annotated[
        bool, typer.Option("--byte-fallback", help="Spell unseen characters as bytes instead of <unk>.")
    ] = False,
    strict: Strict = False,
) -> None:
    """Learn a subword model with SentencePiece. The same text always gives the same model.

    A text too small for N pieces gives a smaller model. Of more than 2,000,000 lines, that many are drawn.

    Examples:

      mtkit tokenize train --input train.en.gz train.de.gz --output joint.model --kind bpe --size 8000

      mtkit tokenize train --input train.zh --output zh.model --kind unigram --size 16000 --byte-fallback
    """
    from mtkit.text.tokenizer import learn

    inputs = [*files, *(more_files or [])]
    for path in inputs:
        if str(path) != "-" and not path.exists():
            raise DataError(f"{path}: no such file")
    with open_output(output) as stream:
        tokenizer = learn(
            _with_progress(inputs, strict),
            kind=kind,
            vocab_size=size,
            normalization=normalization,
            character_coverage=character_coverage,
            byte_fallback=byte_fallback,
            on_skipped=lambda lines, limit: warn(f"left out lines of more than {limit:,} bytes: {lines:,}"),
        )
        stream.write(tokenizer.model)
    smaller = "" if tokenizer.vocab_size == size else f" (the text gives no more; asked for {size:,})"
    typer.echo(f"{output}: {kind}, {tokenizer.vocab_size:,} pieces{smaller}", err=True)


@tokenize_app.command("encode")
def encode(
    model: ModelFile,
    file: TextFile = None,
    ids: Annotated[bool, typer.Option("--ids", help="Write numbers instead of pieces.")] = False,
    output: OutputFile = None,
    strict: Strict = False,
) -> None:
    """Text to pieces joined by blanks: a line in, a line out, as it comes.

    Unknown text keeps its letters among the pieces, so that decode gives it back; with --ids it is <unk> (1).

    Example: echo 'A dog runs.' | mtkit tokenize encode --model joint.model
    """
    from mtkit.text.tokenizer import Tokenizer

    tokenizer = Tokenizer.load(model)

    def pieces_of(_first: int, lines: list[str]) -> list[str]:
        return [" ".join(pieces) for pieces in tokenizer.split(lines)]

    def ids_of(_first: int, lines: list[str]) -> list[str]:
        return [" ".join(map(str, numbers)) for numbers in tokenizer.encode(lines)]

    _filter(file, output, strict, ids_of if ids else pieces_of)


@tokenize_app.command("decode")
def decode(
    model: ModelFile,
    file: TextFile = None,
    ids: Annotated[bool, typer.Option("--ids", help="Read numbers instead of pieces.")] = False,
    output: OutputFile = None,
    strict: Strict = False,
) -> None:
    """Pieces to text, the inverse of encode up to normalisation: a line in, a line out, as it comes.

    With --ids, the unknown id becomes <unk>, and padding and sentence marks are left out.

    Example: mtkit tokenize encode --model joint.model test.en | mtkit tokenize decode --model joint.model
    """
    from mtkit.text.tokenizer import Tokenizer

    tokenizer = Tokenizer.load(model)
    name = _name(file)

    def text_of_pieces(_first: int, lines: list[str]) -> list[str]:
        return tokenizer.join([line.split(" ") for line in lines])

    def text_of_ids(first: int, lines: list[str]) -> list[str]:
        return tokenizer.decode(
            [_numbers(line, f"{name}:{number}", tokenizer) for number, line in enumerate(lines, start=first)]
        )

    _filter(file, output, strict, text_of_ids if ids else text_of_pieces)


def _filter(
    file: str | None, output: Path | None, strict: bool, convert: Callable[[int, list[str]], list[str]]
) -> None:
    """Pass blocks of lines through `convert`, which also gets the number of a block's first line."""
    with open_output(output, on_kept=report_kept) as stream:
        first = 1
        for lines in read_input(file, strict=strict, on_invalid=InvalidLines(), max_lines=BLOCK_LINES):
            _write(stream, convert(first, lines))
            first += len(lines)


def _write(stream: BinaryIO, lines: list[str]) -> None:
    for line in lines:
        write_line(stream, line)
    stream.flush()


def _name(file: str | None) -> str:
    return "<stdin>" if file is None or file == "-" else file


def _numbers(line: str, where: str, tokenizer: Tokenizer) -> list[int]:
    """Raises: DataError for what is no id of the tokenizer."""
    for word in line.split():
        if not (word.isascii() and word.isdigit() and int(word) < tokenizer.vocab_size):
            raise DataError(f"{where}: expected ids below {tokenizer.vocab_size}, got '{word}'")
    return [int(word) for word in line.split()]


def _with_progress(files: list[Path], strict: bool) -> Iterator[str]:
    """The lines of all files, with a progress line on stderr if that is a terminal."""
    from tqdm import tqdm

    with tqdm(desc="reading", unit=" lines", unit_scale=True, file=sys.stderr, disable=None) as bar:
        report = InvalidLines()
        for path in files:
            for block in read_input(str(path), strict=strict, on_invalid=report, max_lines=BLOCK_LINES):
                bar.update(len(block))
                yield from block
