"""Text in, text out: tokenize, batch, search, detokenize; streams, and keeps the order of the lines."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils import parametrize

from mtkit.data.batch import make_batch, make_source
from mtkit.errors import MtkitError, RequestError, first_line, is_out_of_memory
from mtkit.models import Memory, TranslationModel, in_eval_mode
from mtkit.recipe import SearchSection
from mtkit.search.beam import beam_search
from mtkit.search.ensemble import Ensemble
from mtkit.search.force import force, force_at_once
from mtkit.search.hypothesis import Hypothesis
from mtkit.search.penalties import LengthPenalty, Normalization
from mtkit.search.unknown import words_for_unknown
from mtkit.text.tokenizer import UNK_ID, Tokenizer, Tokenizers

Unknown = Literal["forbid", "keep", "replace"]


@contextmanager
def memory_explained(src: Tensor) -> Iterator[None]:
    """Turn an out-of-memory error into one that says what to do; any other passes as it is."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if is_out_of_memory(error):
            raise MtkitError(
                f"out of memory on a batch of {src.size(0)} lines of up to {src.size(1)} tokens ({first_line(error)}); "
                "a smaller beam needs less, and where there is --batch-tokens a smaller batch"
            ) from error
        raise


class Rendering(NamedTuple):
    """One hypothesis as text."""

    text: str  # one line: never holds LF or CR
    tokens: list[str]  # its subword tokens
    log_prob: float  # nats, EOS included
    score: float  # log_prob / length penalty, plus the coverage penalty
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


class Scored(NamedTuple):
    """How probable a model finds a given translation."""

    log_prob: float  # nats, EOS included
    score: float  # log_prob / length penalty
    tokens: list[str]  # the translation's subword tokens
    token_log_probs: list[float]  # one for each token, and one for EOS
    alignment: list[tuple[int, int]] | None  # as in Rendering


class Translator:
    """A model with its tokenizers and its way of searching.

    A line without text (empty, white space, nothing that the tokenizer keeps) is translated as an empty line with
    log-probability and score 0, and never reaches the model.

    Args:
        model: on `device`; put into eval mode while it translates.
        length_penalty: alpha, see `LengthPenalty`.
        max_length_ratio, max_length_extra: a translation has at most ratio x source tokens + extra tokens, rounded up.
        max_source_tokens: what is longer is cut there, and reported to `warn` with its line number.
        coverage_penalty: beta, see `coverage_penalty`; above 0 it needs a model with attention.
        unknown: what becomes of UNK. forbid: it is never chosen; keep: it may be, and is written as <unk>; replace: it
            may be, and is written as the source word that it looks at most.
        dictionary: with unknown replace: source word -> what is written in its place.
        src_tokenizers: of each member of an ensemble; default: the one in `tokenizers`.
        n_best: hypotheses of each line; fewer where the beam finishes no more.
        batch_tokens: source tokens of a batch, padding included, times beam_size; speed and memory hang on it, the
            translations do not.
        need_attention: give alignments.
        precision: bf16 is faster on hardware that has it, but lets near-ties depend on the batch.

    Raises: RequestError for n_best > beam_size, and for what needs attention from a model without.
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
        coverage_penalty: float = 0.0,
        unknown: Unknown = "forbid",
        dictionary: Mapping[str, str] | None = None,
        src_tokenizers: Sequence[Tokenizer] | None = None,
        n_best: int = 1,
        batch_tokens: int = 8192,
        need_attention: bool = False,
        device: str | torch.device = "cpu",
        precision: Literal["fp32", "bf16"] = "fp32",
        warn: Callable[[str], None] | None = None,
    ) -> None:
        if n_best > beam_size:
            raise RequestError(f"n-best {n_best} needs a beam of at least {n_best}, got {beam_size}")
        for what, wanted in (
            ("alignments need", need_attention),
            ("a coverage penalty needs", coverage_penalty > 0),
            ("replacing <unk> needs", unknown == "replace"),
        ):
            if wanted and not model.has_attention:
                raise RequestError(f"{what} a model with attention; this one has none")
        for name, number in (("max_length_ratio", max_length_ratio), ("coverage_penalty", coverage_penalty)):
            if not math.isfinite(number):
                raise RequestError(f"{name}: expected a finite number, got {number}")
        self.model = model
        self.tokenizers = tokenizers
        self.beam_size = beam_size
        self.length_penalty = LengthPenalty(length_penalty, length_normalization)
        self.max_length_ratio = max_length_ratio
        self.max_length_extra = max_length_extra
        self.max_source_tokens = max_source_tokens
        self.coverage_penalty = coverage_penalty
        self.unknown = unknown
        self.dictionary = dictionary or {}
        self.src_tokenizers = list(src_tokenizers or [tokenizers.src])
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
        n_best: int = 1,
        dictionary: Mapping[str, str] | None = None,
        src_tokenizers: Sequence[Tokenizer] | None = None,
        batch_tokens: int = 8192,
        need_attention: bool = False,
        device: str | torch.device = "cpu",
        precision: Literal["fp32", "bf16"] = "fp32",
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
            coverage_penalty=search.coverage_penalty,
            unknown=search.unknown,
            dictionary=dictionary,
            src_tokenizers=src_tokenizers,
            n_best=n_best,
            batch_tokens=batch_tokens,
            need_attention=need_attention,
            device=device,
            precision=precision,
            warn=warn,
        )

    def translate(
        self, lines: Sequence[str], *, first_line: int = 1, before_batch: Callable[[], None] | None = None
    ) -> list[Translation]:
        """One translation for each line, in the order of the lines; `first_line` is for warnings.

        What `before_batch` raises, before any of the batches, ends the work.
        """
        sources = self._source_rows(lines, first_line)
        rows = sources[0]
        found: list[list[Hypothesis]] = [[Hypothesis([], 0.0, 0.0)] for _ in lines]
        with in_eval_mode(self.model):
            for batch in self._batches(rows):
                if before_batch is not None:
                    before_batch()
                for line, hypotheses in zip(batch, self._search(sources, batch), strict=True):
                    found[line] = hypotheses
        return self._render(lines, rows, found)

    def score(
        self, lines: Sequence[str], translations: Sequence[str], *, per_line: int = 1, first_line: int = 1
    ) -> list[Scored]:
        """How probable the model finds the given translations, `per_line` of them for each line, in their order.

        Every pair is scored, also with an empty side; a word that the target vocabulary lacks counts as UNK. The length
        penalty shapes `score` alone.
        """
        sources = self._source_rows(lines, first_line)
        rows = self.tokenizers.trg.encode(translations)
        scored: list[Scored | None] = [None] * len(rows)
        with in_eval_mode(self.model):
            for batch in self._batches_to_score(sources[0], rows, per_line):
                numbers = [line * per_line + nth for line in batch for nth in range(per_line)]
                for number, result in zip(
                    numbers, self._force(sources, batch, [rows[i] for i in numbers]), strict=True
                ):
                    scored[number] = result
        return [each for each in scored if each is not None]

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

    def _source_rows(self, lines: Sequence[str], first_line: int) -> list[list[list[int]]]:
        """The ids of all lines as each member reads them; members of one tokenizer share them."""
        texts = ["" if line.isspace() else line for line in lines]
        by_tokenizer: dict[str, list[list[int]]] = {}
        for tokenizer in self.src_tokenizers:
            if tokenizer.fingerprint in by_tokenizer:
                continue
            rows = tokenizer.encode(texts)
            for i, row in enumerate(rows):
                if len(row) > self.max_source_tokens:
                    rows[i] = row[: self.max_source_tokens]
                    if self.warn is not None:
                        line = f"line {first_line + i}"
                        self.warn(f"{line}: {len(row)} tokens, cut to the first {self.max_source_tokens}")
            by_tokenizer[tokenizer.fingerprint] = rows
        return [by_tokenizer[tokenizer.fingerprint] for tokenizer in self.src_tokenizers]

    def _batches(self, rows: Sequence[Sequence[int]]) -> Iterator[list[int]]:
        """Numbers of lines with text, longest first, so that a batch has little padding and memory runs out early."""
        return self._cut({i: (len(row) + 1) * self.beam_size for i, row in enumerate(rows) if row})

    def _batches_to_score(
        self, src_rows: Sequence[Sequence[int]], trg_rows: Sequence[Sequence[int]], per_line: int
    ) -> Iterator[list[int]]:
        """Numbers of lines, longest first; the tokens of both sides count."""

        def size(line: int) -> int:
            longest = max(map(len, trg_rows[line * per_line : (line + 1) * per_line]))
            return per_line * (len(src_rows[line]) + longest + 1)

        return self._cut({line: size(line) for line in range(len(src_rows))})

    def _cut(self, sizes: Mapping[int, int]) -> Iterator[list[int]]:
        """Batches of lines by their sizes, largest first; padding makes every line of a batch as large as its first."""
        batch: list[int] = []
        for line in sorted(sizes, key=lambda line: (-sizes[line], line)):
            if batch and (len(batch) + 1) * sizes[batch[0]] > self.batch_tokens:
                yield batch
                batch = []
            batch.append(line)
        if batch:
            yield batch

    @torch.inference_mode()
    def _search(self, sources: Sequence[Sequence[Sequence[int]]], batch: Sequence[int]) -> list[list[Hypothesis]]:
        limits = torch.tensor([self.max_length(len(sources[0][i])) for i in batch])
        with self._reading(sources, batch) as memory:
            return beam_search(
                self.model,
                memory,
                limits.to(self.device),
                beam_size=self.beam_size,
                length_penalty=self.length_penalty,
                coverage_beta=self.coverage_penalty,
                n_best=self.n_best,
                need_attention=self.need_attention or self.unknown == "replace",
                allow_unknown=self.unknown != "forbid",
            )

    @torch.inference_mode()
    def _force(
        self, sources: Sequence[Sequence[Sequence[int]]], batch: Sequence[int], translations: Sequence[Sequence[int]]
    ) -> list[Scored]:
        if self.need_attention or isinstance(self.model, Ensemble):
            with self._reading(sources, batch) as memory:
                hypotheses, token_log_probs = force(
                    self.model,
                    memory,
                    translations,
                    length_penalty=self.length_penalty,
                    need_attention=self.need_attention,
                )
        else:
            per_line = len(translations) // len(batch)
            pairs = make_batch([sources[0][i] for i in batch for _ in range(per_line)], translations)
            with self._arithmetic(pairs.src):
                hypotheses, token_log_probs = force_at_once(
                    self.model, pairs.to(self.device), translations, length_penalty=self.length_penalty
                )
        return [
            Scored(each.log_prob, each.score, self.tokenizers.trg.pieces(each.tokens), by_token, self._alignment(each))
            for each, by_token in zip(hypotheses, token_log_probs, strict=True)
        ]

    @contextmanager
    def _reading(self, sources: Sequence[Sequence[Sequence[int]]], batch: Sequence[int]) -> Iterator[Memory]:
        """The memory of some lines, and around its use what `_arithmetic` does."""
        read = [make_source([rows[i] for i in batch]) for rows in sources]
        with self._arithmetic(read[0][0]):
            on_device = [(src.to(self.device), src_pad_mask.to(self.device)) for src, src_pad_mask in read]
            if isinstance(self.model, Ensemble):
                yield self.model.join(
                    [member.encode(*each) for member, each in zip(self.model.members, on_device, strict=True)]
                )
            else:
                yield self.model.encode(*on_device[0])

    @contextmanager
    def _arithmetic(self, src: Tensor) -> Iterator[None]:
        """The arithmetic and the errors that all work on a batch of sources shares."""
        bf16 = torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bf16")
        # Weights that are computed from others, as weight normalisation does, are computed once for these lines.
        with memory_explained(src), bf16, parametrize.cached():
            yield

    def _render(
        self, lines: Sequence[str], rows: Sequence[Sequence[int]], found: Sequence[Sequence[Hypothesis]]
    ) -> list[Translation]:
        trg = self.tokenizers.trg
        unknown = self._words_for_unknown(lines, found) if self.unknown == "replace" else None
        texts = iter(trg.decode([each.tokens for hypotheses in found for each in hypotheses], unknown))
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
                        each.attention if self.need_attention else None,
                    )
                    for each in hypotheses
                ],
            )
            for line, row, hypotheses in zip(lines, rows, found, strict=True)
        ]

    def _words_for_unknown(self, lines: Sequence[str], found: Sequence[Sequence[Hypothesis]]) -> list[list[str]]:
        """What stands for each UNK of each hypothesis."""
        src = self.tokenizers.src
        words: list[list[str]] = []
        for line, hypotheses in zip(lines, found, strict=True):
            pieces: list[str] = []
            for each in hypotheses:
                if UNK_ID not in each.tokens or each.attention is None:
                    words.append([])
                    continue
                pieces = pieces or src.split([line])[0][: self.max_source_tokens]
                words.append(words_for_unknown(each.tokens, each.attention, pieces, src, self.dictionary))
        return words

    def _alignment(self, hypothesis: Hypothesis) -> list[tuple[int, int]] | None:
        """The source token that each target token looked at most; neither EOS counts as a token."""
        if not self.need_attention:
            return None
        if hypothesis.attention is None or hypothesis.attention.size(1) < 2:  # a line without text
            return []
        links = hypothesis.attention[:-1, :-1].argmax(1).tolist()
        return [(src, trg) for trg, src in enumerate(links)]
