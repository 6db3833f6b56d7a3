"""The token store: what goes in comes out, tokenised once, found again, rebuilt when damaged."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from mtkit.data import store as store_module
from mtkit.data.sources import Bitext, open_bitext
from mtkit.data.store import TokenStore, build_store
from mtkit.errors import DataError
from mtkit.recipe import FilePair, FilterSection
from mtkit.text.tokenizer import Tokenizers, learn

SRC = [f"the dog {number} sleeps" for number in range(25)]
TRG = [f"der Hund {number} schläft" for number in range(25)]


@pytest.fixture(scope="module")
def tokenizers() -> Tokenizers:
    return Tokenizers(learn(SRC, kind="char", vocab_size=60), learn(TRG, kind="bpe", vocab_size=60), shared=False)


@pytest.fixture
def bitext_of(tmp_path: Path):
    def write(src: list[str], trg: list[str], name: str = "t") -> Bitext:
        files = FilePair(src=f"{name}.src", trg=f"{name}.trg")
        (tmp_path / files.src).write_text("".join(line + "\n" for line in src), encoding="utf-8")
        (tmp_path / files.trg).write_text("".join(line + "\n" for line in trg), encoding="utf-8")
        return open_bitext(files, src="", trg="", root=tmp_path)

    return write


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def texts(store: TokenStore, tokenizers: Tokenizers) -> list[tuple[str, str]]:
    src_rows, trg_rows = store.rows(range(len(store)))
    src = tokenizers.src.decode([row.tolist() for row in src_rows])
    trg = tokenizers.trg.decode([row.tolist() for row in trg_rows])
    return list(zip(src, trg, strict=True))


def test_rows_are_the_ids_of_the_lines(bitext_of, tokenizers, cache, monkeypatch):
    monkeypatch.setattr(store_module, "BLOCK_PAIRS", 10)  # so that the store has three batches
    store = build_store([bitext_of(SRC, TRG)], tokenizers, FilterSection(), cache=cache)
    assert len(store) == store.read == 25
    order = [24, 0, 10, 9, 19, 20, 0]
    src_rows, trg_rows = store.rows(np.array(order))
    assert [row.tolist() for row in src_rows] == tokenizers.src.encode([SRC[i] for i in order])
    assert [row.tolist() for row in trg_rows] == tokenizers.trg.encode([TRG[i] for i in order])
    assert {row.dtype for row in src_rows + trg_rows} == {np.dtype(np.int32)}
    assert store.rows([]) == ([], [])


def test_lengths_count_eos(bitext_of, tokenizers, cache):
    store = build_store([bitext_of(SRC, TRG)], tokenizers, FilterSection(), cache=cache)
    assert store.src_lengths.tolist() == [len(ids) + 1 for ids in tokenizers.src.encode(SRC)]
    assert store.trg_lengths.tolist() == [len(ids) + 1 for ids in tokenizers.trg.encode(TRG)]
    assert store.src_lengths.dtype == store.trg_lengths.dtype == np.int32


def test_blank_line_on_one_side_never_shifts_the_pairs(bitext_of, tokenizers, cache):
    bitext = bitext_of(["the dog", "", "sleeps"], ["der Hund", "nichts", "schläft"])
    store = build_store([bitext], tokenizers, FilterSection(), cache=cache)
    src_rows, trg_rows = store.rows([0, 1])
    assert [row.tolist() for row in src_rows] == tokenizers.src.encode(["the dog", "sleeps"])
    assert [row.tolist() for row in trg_rows] == tokenizers.trg.encode(["der Hund", "schläft"])
    assert (store.read, store.dropped["empty side"]) == (3, 1)


def test_sources_follow_each_other_and_duplicates_are_found_across_them(bitext_of, tokenizers, cache):
    bitexts = [bitext_of(SRC[:3], TRG[:3], "one"), bitext_of(SRC[2:5], TRG[2:5], "two")]
    store = build_store(bitexts, tokenizers, FilterSection(drop_duplicates=True), cache=cache)
    assert texts(store, tokenizers) == list(zip(SRC[:5], TRG[:5], strict=True))
    assert store.dropped["duplicate"] == 1


def test_share_of_unknown_tokens_is_of_the_kept_pairs(bitext_of, tokenizers, cache):
    # character tokens: ▁ t h e is 4, of which none is unknown; ▁ Q is 2, of which one is; the last pair is dropped
    bitext = bitext_of(["the", "Q", "Q"], ["der", "der", ""])
    store = build_store([bitext], tokenizers, FilterSection(), cache=cache)
    assert store.unknown_rate == (pytest.approx(1 / 6), 0.0)


def test_invalid_lines_are_counted(tmp_path, tokenizers, cache):
    (tmp_path / "s").write_bytes(b"the\xff\ndog\n")
    (tmp_path / "t").write_bytes(b"der\nHund\xff\n")
    bitext = open_bitext(FilePair(src="s", trg="t"), src="", trg="", root=tmp_path)
    for _ in range(2):  # also when the store is found
        assert build_store([bitext], tokenizers, FilterSection(), cache=cache).invalid == 2


def test_same_content_is_tokenised_once(bitext_of, tokenizers, cache):
    calls: list[int] = []
    for name in ("one", "two"):
        store = build_store(
            [bitext_of(SRC, TRG, name)], tokenizers, FilterSection(), cache=cache, progress=calls.append
        )
        assert texts(store, tokenizers) == list(zip(SRC, TRG, strict=True))
    assert calls == [25]
    assert len(list(cache.iterdir())) == 2  # the store and its counts, nothing left over


def test_other_text_tokenizer_or_filter_makes_another_store(bitext_of, tokenizers, cache):
    def stores() -> int:
        return len(list(cache.glob("*.arrow")))

    bitext = bitext_of(SRC, TRG)
    build_store([bitext], tokenizers, FilterSection(), cache=cache)
    assert stores() == 1
    build_store([bitext], tokenizers, FilterSection(max_length=50), cache=cache)
    assert stores() == 2
    swapped = Tokenizers(tokenizers.trg, tokenizers.src, shared=False)
    build_store([bitext], swapped, FilterSection(), cache=cache)
    assert stores() == 3
    build_store([bitext_of(SRC[:-1], TRG[:-1])], tokenizers, FilterSection(), cache=cache)
    assert stores() == 4


@pytest.mark.parametrize("damage", ["cut", "flipped", "foreign", "no counts", "foreign counts", "no store"])
def test_damaged_store_is_made_again(bitext_of, tokenizers, cache, damage):
    bitext = bitext_of(SRC, TRG)
    build_store([bitext], tokenizers, FilterSection(), cache=cache)
    (arrow,) = cache.glob("*.arrow")
    (counts,) = cache.glob("*.json")
    good = arrow.read_bytes()
    if damage == "cut":
        arrow.write_bytes(good[:-100])
    elif damage == "flipped":
        middle = len(good) // 2
        arrow.write_bytes(good[:middle] + bytes([good[middle] ^ 1]) + good[middle + 1 :])
    elif damage == "foreign":
        arrow.write_bytes(b"something else")
    elif damage == "no counts":
        counts.unlink()
    elif damage == "foreign counts":
        counts.write_text("[]")
    else:
        arrow.unlink()
    calls: list[int] = []
    store = build_store([bitext], tokenizers, FilterSection(), cache=cache, progress=calls.append)
    assert calls == [25]
    assert texts(store, tokenizers) == list(zip(SRC, TRG, strict=True))
    assert arrow.read_bytes() == good


def test_failed_source_leaves_no_store(bitext_of, tokenizers, cache):
    with pytest.raises(DataError, match="unequal line counts, 25 and 24"):
        build_store([bitext_of(SRC, TRG[:-1])], tokenizers, FilterSection(), cache=cache)
    assert list(cache.iterdir()) == []


def test_no_pair_left_says_why_also_the_second_time(bitext_of, tokenizers, cache):
    bitext = bitext_of(["the dog sleeps", "", "the dog"], ["der Hund", "der", "der Hund"])
    for _ in range(2):
        with pytest.raises(DataError) as caught:
            build_store([bitext], tokenizers, FilterSection(max_length=2), cache=cache)
        assert str(caught.value) == "t.src, t.trg: no sentence pair is left of 3: empty side 1, too long 2"


def test_default_cache_is_named_by_the_environment(bitext_of, tokenizers, tmp_path, monkeypatch):
    monkeypatch.setenv("MTKIT_CACHE", str(tmp_path / "here"))
    build_store([bitext_of(SRC, TRG)], tokenizers, FilterSection())
    assert len(list((tmp_path / "here").glob("*.arrow"))) == 1
    monkeypatch.delenv("MTKIT_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    build_store([bitext_of(SRC, TRG)], tokenizers, FilterSection())
    assert len(list((tmp_path / "home" / ".cache" / "mtkit").glob("*.arrow"))) == 1


def test_cache_that_cannot_be_written_is_named(bitext_of, tokenizers, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(DataError) as caught:
        build_store([bitext_of(SRC, TRG)], tokenizers, FilterSection(), cache=tmp_path / "file" / "cache")
    assert str(caught.value) == (
        f"{tmp_path / 'file' / 'cache'}: the cache cannot be written (Not a directory); set MTKIT_CACHE"
    )


def test_open_store_survives_the_loss_of_its_file(bitext_of, tokenizers, cache):
    store = build_store([bitext_of(SRC, TRG)], tokenizers, FilterSection(), cache=cache)
    for path in cache.iterdir():
        os.unlink(path)
    assert texts(store, tokenizers) == list(zip(SRC, TRG, strict=True))


def test_store_opens_with_the_datasets_library(bitext_of, tokenizers, cache):
    import datasets

    build_store([bitext_of(SRC, TRG)], tokenizers, FilterSection(), cache=cache)
    (arrow,) = cache.glob("*.arrow")
    table = datasets.Dataset.from_file(str(arrow))
    assert table[:]["src"] == tokenizers.src.encode(SRC)
    assert table[:]["trg"] == tokenizers.trg.encode(TRG)


def test_ids_of_a_large_vocabulary_fit(bitext_of, tokenizers, cache, monkeypatch):
    class Large:
        fingerprint = "large"
        vocab_size = 100_000

        def encode(self, lines):
            return [[99_999, 4] for _ in lines]

    store = build_store([bitext_of(SRC, TRG)], Tokenizers(Large(), tokenizers.trg, False), FilterSection(), cache=cache)
    assert store.rows([7])[0][0].tolist() == [99_999, 4]
