"""mtkit translate: a filter from source lines to translations."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from mtkit.cli.messages import InvalidLines, report_kept, warn
from mtkit.errors import DataError, RequestError
from mtkit.text.lines import open_output, read_input, write_line

if TYPE_CHECKING:
    from mtkit.search.translator import Rendering, Translation

BLOCK_LINES = 2000  # lines that are sorted by length together, then written


OutputFormat = Literal["text", "jsonl", "tsv"]


def translate(
    model: Annotated[Path, typer.Argument(help="Folder that mtkit train wrote, or one of its checkpoints.")],
    file: Annotated[
        str | None, typer.Argument(help="Text to translate, also compressed; default and '-': standard input.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Default: standard output.")] = None,
    ensemble: Annotated[
        list[Path] | None,
        typer.Option(
            "--ensemble",
            metavar="MODEL",
            help="One more model, of any backend and the same target vocabulary; may be repeated. The first one's "
            "recipe says how to search.",
        ),
    ] = None,
    beam: Annotated[
        int | None, typer.Option(min=1, help="Beam size; 1 is greedy search. Default: the recipe's.")
    ] = None,
    greedy: Annotated[bool, typer.Option("--greedy", help="The best token at each step: --beam 1.")] = False,
    length_penalty: Annotated[
        float | None, typer.Option(min=0, max=10, help="Alpha; 0 = plain log-probability. Default: the recipe's.")
    ] = None,
    length_normalization: Annotated[
        Literal["power", "gnmt"] | None,
        typer.Option(help="power: |Y|^alpha; gnmt: ((5+|Y|)/6)^alpha; |Y| counts EOS. Default: the recipe's."),
    ] = None,
    max_length_ratio: Annotated[
        float | None,
        typer.Option(min=0, help="Longest translation = ratio x source tokens + the recipe's max_length_extra."),
    ] = None,
    coverage_penalty: Annotated[
        float | None, typer.Option(min=0, help="Beta: source words left out cost this much. Default: the recipe's.")
    ] = None,
    replace_unk: Annotated[
        bool, typer.Option("--replace-unk", help="Write an unknown word as the source word that it looks at most.")
    ] = False,
    dictionary: Annotated[
        Path | None,
        typer.Option(help="For --replace-unk: source word, tab, target word, a pair a line; other words are copied."),
    ] = None,
    n_best: Annotated[int, typer.Option(min=1, help="Translations of each line, best first.")] = 1,
    format: Annotated[OutputFormat, typer.Option(help="text, tsv (text, score) or jsonl.")] = "text",
    alignments: Annotated[
        bool, typer.Option("--alignments", help="Add source-target pairs of subword tokens, counted from 0.")
    ] = False,
    batch_tokens: Annotated[
        int, typer.Option(min=1, help="Source tokens x beam size of a batch: speed and memory, not results.")
    ] = 8192,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    precision: Annotated[
        Literal["fp32", "bf16"],
        typer.Option(help="bf16 is faster where the hardware has it; near-ties then depend on the batch."),
    ] = "fp32",
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads. Default: all cores.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at invalid UTF-8 instead of replacing it.")] = False,
) -> None:
    """Translate text: one line in, one line out, in the order of the input.

    Standard input is streamed: the lines that are there are translated and written before more are read. A line
    without text gives an empty line with score 0. A source line longer than the recipe's max_source_tokens is cut,
    with a warning.

    Formats: text is the translation, with --alignments followed by ' ||| 0-0 1-2'; tsv adds the score (and the
    alignment) behind a tab; jsonl is one object for each input line. With --n-best N, text and tsv hold exactly N
    lines for each input line, empty ones where the beam found fewer.

    Examples:

      echo 'A dog runs.' | mtkit translate runs/multi30k

      mtkit translate runs/multi30k test.en.gz --ensemble runs/second --beam 12 --n-best 5 --output test.5best

      mtkit translate runs/words test.en --replace-unk --dictionary en-de.tsv
    """
    if greedy and beam not in (None, 1):
        raise RequestError(f"--greedy and --beam {beam} contradict each other")
    if file not in (None, "-") and not Path(file).exists():
        raise DataError(f"{file}: no such file")

    import torch
    from tqdm import tqdm

    from mtkit.search.ensemble import load_ensemble
    from mtkit.search.translator import Translator
    from mtkit.search.unknown import load_dictionary
    from mtkit.train.precision import resolve_device

    if threads is not None:
        torch.set_num_threads(threads)
    where = resolve_device(device)
    (loaded, *_), joined = load_ensemble([model, *(ensemble or ())], device=where)
    if alignments and not joined.model.has_attention:
        raise RequestError(f"--alignments: {model} has no attention to align with ({loaded.recipe.model['type']})")
    replaces = replace_unk or dictionary is not None
    if replaces and not joined.model.has_attention:
        raise RequestError(f"--replace-unk: {model} has no attention to follow ({loaded.recipe.model['type']})")
    given = {
        "length_penalty": length_penalty,
        "length_normalization": length_normalization,
        "max_length_ratio": max_length_ratio,
        "coverage_penalty": coverage_penalty,
        "unknown": "replace" if replaces else None,
    }
    name = "<stdin>" if file in (None, "-") else str(file)
    translator = Translator.of(
        joined.model,
        loaded.tokenizers,
        loaded.recipe.search.model_copy(update={key: value for key, value in given.items() if value is not None}),
        beam_size=1 if greedy else beam,
        n_best=n_best,
        dictionary=None if dictionary is None else load_dictionary(dictionary),
        src_tokenizers=joined.src_tokenizers,
        batch_tokens=batch_tokens,
        need_attention=alignments,
        device=where,
        precision=precision,
        warn=lambda message: warn(f"{name}: {message}"),
    )
    # A bar beside results that scroll by on the same terminal would only disturb them.
    hidden = not sys.stderr.isatty() or (output is None and sys.stdout.isatty())
    if file in (None, "-") and sys.stdin.isatty():
        print("mtkit: type a line to translate; Ctrl-D ends", file=sys.stderr)
    with open_output(output, on_kept=report_kept) as stream, tqdm(unit=" lines", disable=hidden) as bar:
        for translations in translator.translate_blocks(
            read_input(file, strict=strict, on_invalid=InvalidLines(), max_lines=BLOCK_LINES)
        ):
            for translation in translations:
                for line in _lines(translation, format, n_best):
                    write_line(stream, line)
            stream.flush()
            bar.update(len(translations))


def _lines(translation: Translation, format: OutputFormat, n_best: int) -> Iterator[str]:
    """The lines of output that one line of input becomes."""
    if format == "jsonl":
        yield _json_line(translation)
        return
    for each in translation.hypotheses:
        if format == "tsv":
            columns = [each.text.replace("\t", " "), f"{rounded(each.score):.4f}"]
            yield "\t".join(columns if each.alignment is None else [*columns, pharaoh(each.alignment)])
        else:
            yield each.text if each.alignment is None else f"{each.text} ||| {pharaoh(each.alignment)}"
    is_aligned = translation.hypotheses[0].alignment is not None
    nothing = ("\t\t" if is_aligned else "\t") if format == "tsv" else " ||| " if is_aligned else ""
    yield from [nothing] * (n_best - len(translation.hypotheses))


def _json_line(translation: Translation) -> str:
    best = translation.hypotheses[0]
    fields = {"source": translation.source, **_json_fields(best), "source_tokens": translation.source_tokens}
    fields["hypotheses"] = [{**_json_fields(each), "tokens": each.tokens} for each in translation.hypotheses]
    return json.dumps(fields, ensure_ascii=False)


def _json_fields(each: Rendering) -> dict[str, Any]:
    fields = {"translation": each.text, "score": rounded(each.score), "log_prob": rounded(each.log_prob)}
    return fields if each.alignment is None else {**fields, "alignment": pharaoh(each.alignment)}


def rounded(number: float) -> float:
    """Four digits: what lies behind them hangs on the batch. The sum turns -0.0 into 0.0."""
    return round(number, 4) + 0.0


def pharaoh(alignment: Sequence[tuple[int, int]]) -> str:
    return " ".join(f"{src}-{trg}" for src, trg in alignment)
