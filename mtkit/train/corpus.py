"""From a recipe's data and text sections to token ids: everything that is read before a model exists."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tqdm import tqdm

from mtkit.data.sources import Bitext, Thinned, check_aligned, open_bitext
from mtkit.data.store import TokenStore, build_store
from mtkit.errors import DataError, RequestError
from mtkit.recipe import DataSection, Recipe, TextSection
from mtkit.text.tokenizer import Tokenizer, Tokenizers, learn

Say = Callable[[str], None]


class Corpora(NamedTuple):
    """The bitexts of a recipe, opened and found aligned."""

    train: tuple[Bitext, ...]
    vocabulary: tuple[Bitext, ...]  # what it is learned from: the whole of `train`
    dev: Bitext
    tests: dict[str, Bitext]
    n_train_pairs: int
    n_held_out: dict[str, int]  # pairs of the dev set and of each test set


def open_corpora(data: DataSection) -> Corpora:
    """Open every bitext that the recipe names and count its lines, before anything is written.

    Raises: DataError, which begins with the recipe's key, for a missing file, unequal line counts or a text of nothing.
    """
    root = Path(data.root or ".")
    # All are opened first: a mistyped test set is found before a long training text is counted.
    opened = {}
    for key, source in data.sources:
        with _named(key):
            opened[key] = open_bitext(source, src=data.src, trg=data.trg, root=root)
    keys = {"dev": "data.dev", **{name: f"data.test.{name}" for name in data.test}}
    n_held_out = {name: _count(key, opened[key]) for name, key in keys.items()}
    whole = {key: bitext for key, bitext in opened.items() if key.startswith("data.train")}
    train = whole if data.share == 1 else {key: Thinned(bitext, data.share) for key, bitext in whole.items()}
    n_train_pairs = sum(_count(key, bitext) for key, bitext in train.items())
    tests = {name: opened[f"data.test.{name}"] for name in data.test}
    return Corpora(tuple(train.values()), tuple(whole.values()), opened["data.dev"], tests, n_train_pairs, n_held_out)


def _count(key: str, bitext: Bitext) -> int:
    with _named(key):
        return check_aligned(bitext)


@contextmanager
def _named(key: str) -> Iterator[None]:
    """Let an error about a text begin with the recipe's key."""
    try:
        yield
    except RequestError as error:
        raise DataError(f"{key}: {error}") from error


def learn_tokenizers(corpora: Corpora, text: TextSection, say: Say) -> Tokenizers:
    """Learn the vocabulary, or one for each side, from the training bitext."""

    def report_skipped(count: int, limit: int) -> None:
        say(f"vocabulary: {count:,} lines longer than {limit:,} bytes were left out of learning it")

    def learn_from(sides: tuple[int, ...], vocab_size: int) -> Tokenizer:
        return learn(
            _lines(corpora, sides),
            kind=text.subword,
            vocab_size=vocab_size,
            normalization=text.normalization,
            character_coverage=text.character_coverage,
            byte_fallback=text.byte_fallback,
            on_skipped=report_skipped,
        )

    if text.shared_vocab:
        joint = learn_from((0, 1), text.vocab_size)
        return Tokenizers(joint, joint, True)
    src, trg = learn_from((0,), text.vocab_size), learn_from((1,), text.trg_vocab_size or text.vocab_size)
    return Tokenizers(src, trg, False)


def _lines(corpora: Corpora, sides: tuple[int, ...]) -> Iterator[str]:
    for bitext in corpora.vocabulary:
        for pair in bitext.pairs():
            for side in sides:
                yield pair[side]


def build_train_store(corpora: Corpora, recipe: Recipe, tokenizers: Tokenizers) -> TokenStore:
    """The training bitext as ids, filtered, from the cache when it was made before; a bar on a terminal.

    Raises: DataError when no pair is left.
    """
    with tqdm(total=corpora.n_train_pairs, unit=" pairs", disable=not sys.stderr.isatty(), leave=False) as bar:
        return build_store(
            corpora.train, tokenizers, recipe.data.filters, progress=lambda n_read: bar.update(n_read - bar.n)
        )


def count_overlap(corpora: Corpora) -> dict[str, int]:
    """For the dev set and each test set: how many of its pairs also stand in the training bitext."""
    held_out = {"dev": corpora.dev, **corpora.tests}
    pairs_of = {name: [_key(pair) for pair in bitext.pairs()] for name, bitext in held_out.items()}
    wanted = set(itertools.chain.from_iterable(pairs_of.values()))
    seen = {key for bitext in corpora.train for pair in bitext.pairs() if (key := _key(pair)) in wanted}
    return {name: sum(key in seen for key in keys) for name, keys in pairs_of.items()}


def _key(pair: tuple[str, str]) -> tuple[str, str]:
    """Pairs that differ in white space or case alone count as the same."""
    return " ".join(pair[0].split()).casefold(), " ".join(pair[1].split()).casefold()
