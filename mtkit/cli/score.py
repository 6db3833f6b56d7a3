"""mtkit score"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from mtkit.cli.messages import InvalidLines, report_kept, warn
from mtkit.cli.translate import BLOCK_LINES, pharaoh, rounded
from mtkit.errors import DataError, RequestError
from mtkit.text.lines import OnInvalid, open_output, read_input, write_line

if TYPE_CHECKING:
    from mtkit.search.translator import Scored

ScoreFormat = Literal["text", "tsv", "jsonl"]


def score(
    model: Annotated[Path, typer.Argument(help="Folder that mtkit train wrote, or one of its checkpoints.")],
    source: Annotated[Path, typer.Argument(help="Source lines, also compressed; '-': standard input.")],
    target: Annotated[
        Path, typer.Argument(help="Their translations, line by line, also compressed; '-': standard input.")
    ],
    ensemble: Annotated[
        list[Path] | None, typer.Option("--ensemble", metavar="MODEL", help="One more model; may be repeated.")
    ] = None,
    n_best: Annotated[
        int, typer.Option(min=1, help="Translations of each source line, as mtkit translate --n-best writes them.")
    ] = 1,
    format: Annotated[ScoreFormat, typer.Option(help="text, tsv or jsonl.")] = "text",
    alignments: Annotated[
        bool, typer.Option("--alignments", help="Add source-target pairs of subword tokens, counted from 0.")
    ] = False,
    length_penalty: Annotated[
        float | None, typer.Option(min=0, max=10, help="Alpha, for the score. Default: the recipe's.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Default: standard output.")] = None,
    batch_tokens: Annotated[int, typer.Option(min=1, help="Tokens of a batch: speed and memory, not results.")] = 8192,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    precision: Annotated[
        Literal["fp32", "bf16"], typer.Option(help="bf16 is faster where the hardware has it.")
    ] = "fp32",
) -> None:
    """How probable a model finds given translations: one line for each line of TARGET.

    Formats: text is the log-probability in nats, EOS included (with --alignments followed by ' ||| 0-0 1-2'); tsv adds
    the score by which search ranks (log-probability over length penalty), the number of tokens, EOS counted, and the
    perplexity; jsonl gives the tokens with their log-probabilities too.

    Every pair is scored, also one with an empty side. Another model's n-best list is rescored with --n-best N: SOURCE
    has one line for every N of TARGET, and the scores come in TARGET's order.

    Examples:

      mtkit score runs/multi30k-transformer test.en test.de --format tsv

      mtkit translate runs/multi30k-luong test.en --n-best 5 --output test.5best

      mtkit score runs/multi30k-transformer test.en test.5best --n-best 5 | paste - test.5best
    """
    from mtkit.search.ensemble import load_ensemble
    from mtkit.search.translator import Translator
    from mtkit.train.precision import resolve_device

    if length_penalty is not None and format == "text":
        raise RequestError("--length-penalty: shapes the score, which --format tsv and jsonl give")
    if str(source) == str(target) == "-":
        raise RequestError("-: standard input can be read only once; give the other text as a file")
    read_sources, read_targets = _reader(source), _reader(target)
    n_sources, n_targets = (sum(1 for _ in read(_unreported)) for read in (read_sources, read_targets))
    if n_sources * n_best != n_targets:
        times = f" x {n_best}" if n_best > 1 else ""
        raise DataError(f"{source} has {n_sources:,} lines{times} and {target} {n_targets:,}; they must be aligned")
    where = resolve_device(device)
    (loaded, *_), joined = load_ensemble([model, *(ensemble or ())], device=where)
    search = loaded.recipe.search
    if length_penalty is not None:
        search = search.model_copy(update={"length_penalty": length_penalty})
    # How UNK would be searched for does not concern a given translation.
    search = search.model_copy(update={"unknown": "keep", "coverage_penalty": 0.0})
    translator = Translator.of(
        joined.model,
        loaded.tokenizers,
        search,
        src_tokenizers=joined.src_tokenizers,
        batch_tokens=batch_tokens,
        need_attention=alignments,
        device=where,
        precision=precision,
        warn=lambda message: warn(f"{source}: {message}"),
    )
    sources, targets = read_sources(InvalidLines()), read_targets(InvalidLines())
    with open_output(output, on_kept=report_kept) as stream:
        first_line = 1
        while block := list(islice(sources, BLOCK_LINES)):
            translations = list(islice(targets, n_best * len(block)))
            scored = translator.score(block, translations, per_line=n_best, first_line=first_line)
            for text, each in zip(translations, scored, strict=True):
                write_line(stream, _line(text, each, format))
            stream.flush()
            first_line += len(block)


def _reader(path: Path) -> Callable[[OnInvalid], Iterator[str]]:
    """What reads a text from its start: the file, or what a pipe held when it was read to its end here."""

    def read(on_invalid: OnInvalid) -> Iterator[str]:
        return chain.from_iterable(read_input(str(path), strict=False, on_invalid=on_invalid, max_lines=BLOCK_LINES))

    if path.is_file() or (not path.exists() and str(path) != "-"):  # what is not there is read's to tell
        return read
    lines = list(read(InvalidLines()))
    return lambda _on_invalid: iter(lines)


def _unreported(_name: str, _number: int) -> None:
    """Invalid UTF-8 is reported where the lines are scored, not where they are counted."""


def _line(text: str, each: Scored, format: ScoreFormat) -> str:
    n_tokens = len(each.token_log_probs)
    ppl = math.exp(min(-each.log_prob / n_tokens, 700))
    if format == "jsonl":
        fields = {
            "translation": text,
            "log_prob": rounded(each.log_prob),
            "score": rounded(each.score),
            "ppl": rounded(ppl),
            "tokens": [*each.tokens, "</s>"],
            "token_log_probs": [rounded(number) for number in each.token_log_probs],
        }
        if each.alignment is not None:
            fields["alignment"] = pharaoh(each.alignment)
        return json.dumps(fields, ensure_ascii=False)
    columns = [f"{rounded(each.log_prob):.4f}"]
    if format == "tsv":
        columns += [f"{rounded(each.score):.4f}", str(n_tokens), f"{rounded(ppl):.4f}"]
    if each.alignment is not None:
        columns.append(pharaoh(each.alignment))
    return ("\t" if format == "tsv" else " ||| ").join(columns)
