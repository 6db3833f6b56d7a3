"""Text in, text out: tokenize, batch, search, detokenize; streams, and keeps the order of the lines."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from mtkit.data.batch import make_source
from mtkit.errors import MtkitError, RequestError, is_out_of_memory
from mtkit.models import TranslationModel
from mtkit.recipe import SearchSection
from mtkit.search.beam import beam_search
from mtkit.search.hypothesis import Hypothesis
from mtkit.search.penalties import LengthPenalty, Normalization
from mtkit.text.tokenizer import Tokenizers


@contextmanager
def memory_explained(src: Tensor) -> Iterator[None]:
    """Turn an out-of-memory error into one that says what to do; any other passes as it is."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if is_out_of_memory(error):
            raise MtkitError(
                f"out of memory on a batch of {src.size(0)} lines of up to {src.size(1)} tokens; lower --batch-tokens "
                "or --beam"
            ) from error
        raise


class Rendering(NamedTuple):
    """One hypothesis as text."""

    text: str  # one line: never holds LF or CR
    tokens: list[str]  # its subword tokens
    log_prob: float  # nats, EOS included
    score: float  # log_prob / length penalty
    alignment: list[tuple[int, int]] | None  # (source token, target token), both from 0; None unless asked for
    attention: Tensor | None  # [trg_len + 1, src_len], EOS last on both sides; None unless asked for, or without text


class Translation(NamedTuple):
    """What became of one line."""

    source: str
    source_tokens: list[str]  # what the model read, EOS not counted
    hypotheses: list[Rendering]  # best first; one or more

    @property
    def text(self) -> str:
        """The best hypothesis."""
        return self.hypotheses[0].text


class Translator:
    """A model with its tokenizers and its way of searching.

    A line without text (empty, white space, nothing that the tokenizer keeps) is translated as an empty line with
    log-probability and score 0, and never reaches the model.

    Args:
        model: on `device`; put into eval mode while it translates.
        length_penalty: alpha, see `LengthPenalty`.
        max_length_ratio, max_length_extra: a translation has at most ratio x source tokens + extra tokens, rounded up.
        max_source_tokens: what is longer is cut there, and reported to `warn` with its line number.
        n_best: hypotheses of each line; fewer where the beam finishes no more.
        batch_tokens: source tokens of a batch, padding included, times beam_size; speed and memory hang on it, the
            translations do not.
        need_attention: give alignments.
        precision: bf16 is faster on hardware that has it, but lets near-ties depend on the batch.

    Raises: RequestError for n_best > beam_size, and for alignments from a model without attention.
    """

    def __init__(
        self,
        model: TranslationModel,
        tokenizers: Tokenizers,
        *,
        beam_size: int = 5,
        length_penalty: float = 1.0,
        length_normalization: Normalization = "power",
        max_length_ratio: float = 2.0,
        max_length_extra: int = 20,
        max_source_tokens: int = 1000,
        n_best: int = 1,
        batch_tokens: int = 8192,
        need_attention: bool = False,
        device: str | torch.device = "cpu",
        precision: Literal["fp32", "bf16"] = "fp32",
        warn: Callable[[str], None] | None = None,
    ) -> None:
        if n_best > beam_size:
            raise RequestError(f"n-best {n_best} needs a beam of at least {n_best}, got {beam_size}")
        if need_attention and not model.has_attention:
            raise RequestError("alignments need a model with attention; this one has none")
        if not math.isfinite(max_length_ratio):
            raise RequestError(f"max_length_ratio: expected a finite number, got {max_length_ratio}")
        self.model = model
        self.tokenizers = tokenizers
        self.beam_size = beam_size
        self.length_penalty = LengthPenalty(length_penalty, length_normalization)
        self.max_length_ratio = max_length_ratio
        self.max_length_extra = max_length_extra
        self.max_source_tokens = max_source_tokens
        self.n_best = n_best
        self.batch_tokens = batch_tokens
        self.need_attention = need_attention
        self.device = torch.device(device)
        self.precision = precision
        self.warn = warn

    @classmethod
    def of(
        cls,
        model: TranslationModel,
        tokenizers: Tokenizers,
        search: SearchSection,
        *,
        beam_size: int | None = None,
        need_attention: bool = False,
        device: str | torch.device = "cpu",
        warn: Callable[[str], None] | None = None,
    ) -> Translator:
        """A translator that searches as a recipe says, with another beam where one is given."""
        return cls(
            model,
            tokenizers,
            beam_size=beam_size or search.beam_size,
            length_penalty=search.length_penalty,
            length_normalization=search.length_normalization,
            max_length_ratio=search.max_length_ratio,
            max_length_extra=search.max_length_extra,
            max_source_tokens=search.max_source_tokens,
            need_attention=need_attention,
            device=device,
            warn=warn,
        )

    def translate(self, lines: Sequence[str], *, first_line: int = 1) -> list[Translation]:
        """One translation for each line, in the order of the lines; `first_line` is for warnings."""
        rows = self._source_rows(lines, first_line)
        found: list[list[Hypothesis]] = [[Hypothesis([], 0.0, 0.0)] for _ in lines]
        was_training = self.model.training
        self.model.eval()
        try:
            for batch in self._batches(rows):
                for line, hypotheses in zip(batch, self._search([rows[i] for i in batch]), strict=True):
                    found[line] = hypotheses
        finally:
            self.model.train(was_training)
        return self._render(lines, rows, found)

    def translate_blocks(self, blocks: Iterable[Sequence[str]]) -> Iterator[list[Translation]]:
        """The translations of each block, before the next one is asked for."""
        first_line = 1
        for block in blocks:
            yield self.translate(block, first_line=first_line)
            first_line += len(block)

    def max_length(self, n_src_tokens: int) -> int:
        """Most tokens of a translation, EOS not counted, for a source of so many tokens, EOS not counted."""
        # Without the tiny number, 1.1 x 10 = 11.000000000000002 would be rounded up to 12.
        return math.ceil(self.max_length_ratio * n_src_tokens - 1e-9) + self.max_length_extra

    def _source_rows(self, lines: Sequence[str], first_line: int) -> list[list[int]]:
        rows = self.tokenizers.src.encode(["" if line.isspace() else line for line in lines])
        for i, row in enumerate(rows):
            if len(row) > self.max_source_tokens:
                rows[i] = row[: self.max_source_tokens]
                if self.warn is not None:
                    self.warn(f"line {first_line + i}: {len(row)} tokens, cut to the first {self.max_source_tokens}")
        return rows

    def _batches(self, rows: Sequence[Sequence[int]]) -> Iterator[list[int]]:
        """Numbers of lines with text, longest first, so that a batch has little padding and memory runs out early."""
        batch: list[int] = []
        for i in sorted((i for i, row in enumerate(rows) if row), key=lambda i: (-len(rows[i]), i)):
            if batch and (len(batch) + 1) * (len(rows[batch[0]]) + 1) * self.beam_size > self.batch_tokens:
                yield batch
                batch = []
            batch.append(i)
        if batch:
            yield batch

    @torch.inference_mode()
    def _search(self, rows: Sequence[Sequence[int]]) -> list[list[Hypothesis]]:
        src, src_pad_mask = make_source(rows)
        limits = torch.tensor([self.max_length(len(row)) for row in rows])
        with memory_explained(src), torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bf16"):
            return beam_search(
                self.model,
                src.to(self.device),
                src_pad_mask.to(self.device),
                limits.to(self.device),
                beam_size=self.beam_size,
                length_penalty=self.length_penalty,
                n_best=self.n_best,
                need_attention=self.need_attention,
            )

    def _render(
        self, lines: Sequence[str], rows: Sequence[Sequence[int]], found: Sequence[Sequence[Hypothesis]]
    ) -> list[Translation]:
        trg = self.tokenizers.trg
        texts = iter(trg.decode([hypothesis.tokens for hypotheses in found for hypothesis in hypotheses]))
        return [
            Translation(
                line,
                self.tokenizers.src.pieces(row),
                [
                    Rendering(
                        next(texts),
                        trg.pieces(each.tokens),
                        each.log_prob,
                        each.score,
                        self._alignment(each),
                        each.attention,
                    )
                    for each in hypotheses
                ],
            )
            for line, row, hypotheses in zip(lines, rows, found, strict=True)
        ]

    def _alignment(self, hypothesis: Hypothesis) -> list[tuple[int, int]] | None:
        """The source token that each target token looked at most; neither EOS counts as a token."""
        if not self.need_attention:
            return None
        if hypothesis.attention is None:  # a line without text
            return []
        links = hypothesis.attention[:-1, :-1].argmax(1).tolist()
        return [(src, trg) for trg, src in enumerate(links)]
