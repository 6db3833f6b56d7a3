"""Subword tokenizers: SentencePiece models that are learned, saved, and turn lines into ids and back.

Four ids are fixed for every tokenizer: PAD, UNK, BOS, EOS. Text never becomes one of PAD, BOS and EOS,
whatever is typed in it; only a piece that the vocabulary lacks becomes UNK.

What a round trip changes: the normalisation rule is applied; runs of blanks become one, leading and trailing
blanks go; a typed U+2581, SentencePiece's own sign for a blank, comes back as a blank. The default rule
(nmt_nfkc) keeps U+200D, as Sinhala and joined emoji need it, but makes U+200C, as in Persian, a blank; the
rule `identity` keeps both.

The kind `word` cuts punctuation from words, after normalisation, and joins them again, see `mtkit.text.words`; the most
frequent words are the vocabulary, all others are UNK.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from pathlib import Path
from random import Random
from typing import NamedTuple

import sentencepiece

from mtkit.errors import DataError, ModelError
from mtkit.text.lines import open_output
from mtkit.text.words import MARK, join_words, split_words

PAD_ID, UNK_ID, BOS_ID, EOS_ID = 0, 1, 2, 3
SPECIALS = ("<pad>", "<unk>", "<s>", "</s>")
KINDS = ("unigram", "bpe", "word", "char")  # in the order of SentencePiece's TrainerSpec.ModelType, from 1

MAX_LEARN_LINES = 2_000_000
MAX_LEARN_BYTES = 1 << 16  # longest line that is learned from
_ANY_LENGTH = 1 << 30  # a line that is short enough grows when its words are set apart

_BLANK = "\u2581"
# SentencePiece drops a line that holds its own sign for unknown text.
_RESERVED = "\u2585"
_BREAKS = re.compile("[\r\n]")
_SPACES = re.compile("[ \r\n\u2581]+")


class Tokenizer:
    """One SentencePiece model with the four special ids of this toolkit.

    Raises: ModelError when `model` is no SentencePiece model or has other special ids, among them a model
    trained with the library's defaults, which has no padding id at all.
    """

    def __init__(self, model: bytes, *, name: str = "tokenizer") -> None:
        self._processor = sentencepiece.SentencePieceProcessor()
        try:
            self._processor.LoadFromSerializedProto(model)
        except (RuntimeError, ValueError) as error:
            raise ModelError(f"{name}: not a SentencePiece model") from error
        found = (
            self._processor.pad_id(),
            self._processor.unk_id(),
            self._processor.bos_id(),
            self._processor.eos_id(),
        )
        if found != (PAD_ID, UNK_ID, BOS_ID, EOS_ID):
            raise ModelError(
                f"{name}: has the ids pad {found[0]}, unk {found[1]}, bos {found[2]}, eos {found[3]}; needed are "
                f"{PAD_ID}, {UNK_ID}, {BOS_ID}, {EOS_ID}; learn it with mtkit tokenize train"
            )
        self.model = model  # the bytes of the SentencePiece model file
        self.vocab_size: int = self._processor.vocab_size()
        self.kind: str = KINDS[_model_type(model) - 1]
        self.fingerprint: str = hashlib.sha256(model).hexdigest()
        self._pieces: list[str] = self._processor.id_to_piece(list(range(self.vocab_size)))
        self._bytes = {
            piece: bytes([int(piece[3:5], 16)])
            for number, piece in enumerate(self._pieces)
            if self._processor.is_byte(number)
        }

    @classmethod
    def load(cls, path: str | Path) -> Tokenizer:
        """Raises: ModelError when there is no such file, or see the class."""
        try:
            model = Path(path).read_bytes()
        except FileNotFoundError as error:
            raise ModelError(f"{path}: no such file") from error
        except OSError as error:
            raise ModelError(f"{path}: cannot be read ({error.strerror})") from error
        return cls(model, name=str(path))

    def save(self, path: str | Path) -> None:
        """Write the SentencePiece model file, whole or not at all."""
        with open_output(path) as stream:
            stream.write(self.model)

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """The ids of each line, without BOS and EOS; the same line always gives the same ids."""
        if self.kind == "word":
            return [self.ids(pieces) for pieces in self.split(lines)]
        return self._processor.encode(_without_breaks(lines), out_type=int, num_threads=-1)

    def decode(self, ids: Sequence[Sequence[int]], unknown: Sequence[Sequence[str]] | None = None) -> list[str]:
        """The text of each id sequence: one line each, without doubled blanks, LF, CR and U+2581.

        PAD, BOS and EOS are skipped. UNK becomes the mark `<unk>`, a word of its own if tokens are words,
        otherwise at its place inside the word. With `unknown`, the k-th UNK of a sequence becomes its k-th string.
        """
        return self.join(
            [
                self._with_unknown(sequence, iter(unknown[number]) if unknown is not None else repeat(SPECIALS[UNK_ID]))
                for number, sequence in enumerate(ids)
            ]
        )

    def _with_unknown(self, sequence: Sequence[int], words: Iterator[str]) -> list[str]:
        """Pieces of ids, with a word for each UNK."""
        before = _BLANK if self.kind == "word" else ""
        return [
            before + next(words) if i == UNK_ID else self._pieces[i]
            for i in sequence
            if i not in (PAD_ID, BOS_ID, EOS_ID)
        ]

    def split(self, lines: Sequence[str]) -> list[list[str]]:
        """The pieces of each line, as many as `encode` gives ids; what is unknown keeps its own letters."""
        if self.kind == "word":
            # SentencePiece makes one piece of unknown words in a row, and so one <unk>: here each is one.
            normal = self._processor.normalize(_without_breaks(lines))
            return [[_BLANK + word for word in _apart(text).split()] for text in normal]
        return self._processor.encode(_without_breaks(lines), out_type=str, num_threads=-1)

    def normalize(self, lines: Sequence[str]) -> list[str]:
        """Each line as its pieces spell it: what `split` cuts."""
        normal = self._processor.normalize(_without_breaks(lines))
        return [text.replace(_BLANK, " ").strip(" ") for text in normal]

    def join(self, pieces: Sequence[Sequence[str]]) -> list[str]:
        """The text of each sequence of pieces: the inverse of `split` up to normalisation."""
        texts = [_SPACES.sub(" ", self._joined(line)).strip(" ") for line in pieces]
        return [join_words(text) for text in texts] if self.kind == "word" else texts

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The piece of each id, specials included."""
        return [self._pieces[i] for i in ids]

    def ids(self, pieces: Sequence[str]) -> list[int]:
        """The id of each piece; UNK for what is no piece of this vocabulary."""
        return [self._processor.piece_to_id(piece) for piece in pieces]

    def word_at(self, pieces: Sequence[str], position: int) -> str:
        """The word that the piece at `position` belongs to, as `split` has cut it: its letters alone."""
        first = position
        while first > 0 and not pieces[first].startswith(_BLANK):
            first -= 1
        end = position + 1
        while end < len(pieces) and not pieces[end].startswith(_BLANK):
            end += 1
        word = self._joined(pieces[first:end]).replace(_BLANK, "")
        return word.replace(MARK, "") if self.kind == "word" else word

    def _joined(self, line: Sequence[str]) -> str:
        """Pieces put together; byte pieces in a row are UTF-8, and U+FFFD where they are not."""
        if not any(piece in self._bytes for piece in line):
            return "".join(line)
        return b"".join(self._bytes.get(piece) or piece.encode("utf-8") for piece in line).decode("utf-8", "replace")


class Tokenizers(NamedTuple):
    """The tokenizers of both sides; one and the same object if the vocabulary is shared."""

    src: Tokenizer
    trg: Tokenizer
    shared: bool

    def save(self, folder: str | Path) -> None:
        """Write joint.model, or src.model and trg.model, into `folder`, which is made if needed."""
        Path(folder).mkdir(parents=True, exist_ok=True)
        if self.shared:
            self.src.save(Path(folder) / "joint.model")
        else:
            self.src.save(Path(folder) / "src.model")
            self.trg.save(Path(folder) / "trg.model")

    @classmethod
    def load(cls, folder: str | Path) -> Tokenizers:
        """Raises: ModelError when the folder holds no tokenizer or one that cannot be used."""
        joint = Path(folder) / "joint.model"
        if joint.exists():
            tokenizer = Tokenizer.load(joint)
            return cls(tokenizer, tokenizer, shared=True)
        if not (Path(folder) / "src.model").exists():
            raise ModelError(f"{folder}: no tokenizer here (joint.model, or src.model and trg.model)")
        return cls(Tokenizer.load(Path(folder) / "src.model"), Tokenizer.load(Path(folder) / "trg.model"), shared=False)


def learn(
    lines: Iterable[str],
    *,
    kind: str,
    vocab_size: int,
    normalization: str = "nmt_nfkc",
    character_coverage: float = 1.0,
    byte_fallback: bool = False,
    on_skipped: Callable[[int, int], None] | None = None,
) -> Tokenizer:
    """Learn a tokenizer from text; the same lines always give the same tokenizer.

    `vocab_size` counts the four specials; a text too small for it gives a smaller vocabulary. Of more than
    `MAX_LEARN_LINES` lines, that many are drawn. Lines longer than `MAX_LEARN_BYTES` are left out;
    `on_skipped(lines, limit in bytes)` tells how many, if any.

    Raises: DataError when there is no text, when `vocab_size` cannot hold the characters of the text, or for words with
    byte_fallback.
    """
    if kind == "word" and byte_fallback:
        raise DataError("words are not spelled as bytes: byte fallback needs another kind of token")
    n_fixed = len(SPECIALS) + (256 if byte_fallback else 0)
    if vocab_size <= n_fixed:
        bytes_too = " and the bytes" if byte_fallback else ""
        raise DataError(f"a vocabulary of {vocab_size} is too small: the special symbols{bytes_too} take {n_fixed}")
    sample, n_too_long = _sample(lines)
    if n_too_long and on_skipped is not None:
        on_skipped(n_too_long, MAX_LEARN_BYTES)
    if not sample:
        raise DataError("there is no text to learn a tokenizer from")
    if kind == "word":
        normalizer = sentencepiece.SentencePieceNormalizer(rule_name=normalization)
        sample = [_apart(normalizer.normalize(line)) for line in sample]
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(sample),
            model_writer=model,
            model_type=kind,
            vocab_size=vocab_size,
            hard_vocab_limit=False,
            normalization_rule_name=normalization,
            character_coverage=character_coverage,
            byte_fallback=byte_fallback,
            max_sentence_length=MAX_LEARN_BYTES if kind != "word" else _ANY_LENGTH,
            pad_id=PAD_ID,
            unk_id=UNK_ID,
            bos_id=BOS_ID,
            eos_id=EOS_ID,
            pad_piece=SPECIALS[PAD_ID],
            unk_piece=SPECIALS[UNK_ID],
            bos_piece=SPECIALS[BOS_ID],
            eos_piece=SPECIALS[EOS_ID],
            num_threads=8,  # fixed: the sums of unigram training depend on how the text is divided
            minloglevel=2,
        )
    except RuntimeError as error:
        raise _learning_error(str(error), vocab_size) from error
    return Tokenizer(model.getvalue())


def _without_breaks(lines: Sequence[str]) -> list[str]:
    """The lines with a blank for each CR and LF, which are white space inside a line under any rule."""
    return [_BREAKS.sub(" ", line) for line in lines]


def _apart(normal: str) -> str:
    """Words and punctuation of a line that SentencePiece has normalised: its sign for a blank is one again."""
    return split_words(normal.replace(_BLANK, " "))


def _sample(lines: Iterable[str]) -> tuple[list[str], int]:
    """At most `MAX_LEARN_LINES` lines, each with the same chance, and the number of lines too long to use.

    Reservoir sampling: every n-th line would be all of one language where the sides of a bitext alternate.
    """
    random = Random(1)
    sample: list[str] = []
    n_lines = n_too_long = 0
    for line in lines:
        if len(line) > MAX_LEARN_BYTES // 4 and len(line.encode("utf-8", "replace")) > MAX_LEARN_BYTES:
            n_too_long += 1
            continue
        if not line or line.isspace():
            continue
        n_lines += 1
        text = _BREAKS.sub(" ", line).replace(_RESERVED, " ")
        place = len(sample) if len(sample) < MAX_LEARN_LINES else random.randrange(n_lines)
        if place < MAX_LEARN_LINES:
            sample[place : place + 1] = [text]
    return sample, n_too_long


def _learning_error(message: str, vocab_size: int) -> DataError:
    """SentencePiece's message in the words of a recipe."""
    needed = re.search(r"required_chars\. \d+ vs (\d+)", message)
    if needed:
        return DataError(
            f"a vocabulary of {vocab_size} is too small: this text needs at least {needed[1]}, one for each character "
            "and special symbol; raise the vocabulary size or lower the character coverage"
        )
    if "sentences_.empty()" in message:
        return DataError("there is no text to learn a tokenizer from")
    return DataError(f"SentencePiece cannot learn from this text: {message.splitlines()[-1]}")


def _model_type(model: bytes) -> int:
    """`trainer_spec.model_type` of a serialized ModelProto; 1 (unigram), the format's default, if not given.

    Read by hand because SentencePiece does not tell, and its own reader needs protobuf installed.
    """
    trainer_spec = next((value for field, value in _fields(model) if field == 2), b"")
    assert isinstance(trainer_spec, bytes)
    kind = next((value for field, value in _fields(trainer_spec) if field == 3), 1)
    assert isinstance(kind, int)
    return kind


def _fields(message: bytes) -> Iterable[tuple[int, int | bytes]]:
    """Field numbers and values of a protobuf message; fixed-width values are passed as bytes."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    while at < len(message):
        tag = varint()
        wire_type = tag & 7
        if wire_type == 0:
            yield tag >> 3, varint()
            continue
        size = varint() if wire_type == 2 else {1: 8, 5: 4}[wire_type]
        yield tag >> 3, message[at : at + size]
        at += size
