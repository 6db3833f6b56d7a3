"""Counts over a small bitext, worked out by hand."""

from __future__ import annotations

import pytest

from mtkit.data.sources import open_bitext
from mtkit.data.stats import BUCKETS, measure
from mtkit.errors import DataError
from mtkit.recipe import FilePair


def measure_files(tmp_path, src: bytes, trg: bytes):
    (tmp_path / "s").write_bytes(src)
    (tmp_path / "t").write_bytes(trg)
    return measure(open_bitext(FilePair(src="s", trg="t"), src="", trg="", root=tmp_path))


def test_everything_is_counted(tmp_path):
    src = b"a b c d e f\nhi\n\nhi\n \xff\nlong long long\n"
    trg = b"A B C D E\nhi\nB\nhi\nC\nkurz\n"
    stats = measure_files(tmp_path, src, trg)
    assert stats.pairs == 6
    assert (stats.src.words, stats.trg.words) == (12, 10)
    assert (stats.src.characters, stats.trg.characters) == (11 + 2 + 0 + 2 + 2 + 14, 9 + 2 + 1 + 2 + 1 + 4)
    assert (stats.src.longest, stats.trg.longest) == (6, 5)
    assert (stats.src.empty, stats.trg.empty, stats.empty) == (1, 0, 1)
    assert stats.unequal == 1
    assert stats.identical == 2
    assert stats.duplicates == 1
    assert stats.invalid == 1
    assert BUCKETS[:2] == (5, 10)
    assert stats.src.histogram[:2] == [5, 1]
    assert stats.trg.histogram[:2] == [6, 0]


def test_line_longer_than_every_bucket_is_counted(tmp_path):
    stats = measure_files(tmp_path, b"w " * (BUCKETS[-1] + 1) + b"\n", b"w " * BUCKETS[-1] + b"\n")
    assert (stats.src.histogram[-1], stats.trg.histogram[-2]) == (1, 1)


def test_unequal_files_are_refused(tmp_path):
    with pytest.raises(DataError, match="unequal line counts, 2 and 1"):
        measure_files(tmp_path, b"a\nb\n", b"A\n")
