"""Tokenised sentence pairs on disk: tokenised once, memory-mapped, cached by content.

The store is an Arrow stream with the list columns `src` and `trg`, which `datasets.Dataset.from_file` opens
too; beside it lies a JSON file with the counts. Both are named by a hash of everything that went in, so a
changed source, tokenizer or filter makes a new store and the same ones find the old.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from mtkit.data.filters import PairFilter
from mtkit.data.sources import Bitext
from mtkit.errors import DataError
from mtkit.recipe import FilterSection
from mtkit.text.tokenizer import UNK_ID, Tokenizers

FORMAT = 1  # part of the key: raise it when the content of a store changes
BLOCK_PAIRS = 10_000  # pairs that are tokenised at once, and about the rows of one Arrow batch


class TokenStore:
    """Sentence pairs as token ids, in the order of the sources, read from disk as they are asked for."""

    def __init__(self, path: Path, counts: dict[str, Any]) -> None:
        self.key = path.stem  # names the content: sources, tokenizers, filters
        with pa.memory_map(str(path)) as mapped:
            batches = pa.ipc.open_stream(mapped).read_all().to_batches()
        self._src = [_views(batch.column("src")) for batch in batches]
        self._trg = [_views(batch.column("trg")) for batch in batches]
        self._starts = np.cumsum([0, *(batch.num_rows for batch in batches)])  # first row of each batch
        self.src_lengths = _lengths(self._src)  # [pairs] int32, tokens with EOS
        self.trg_lengths = _lengths(self._trg)
        self.read: int = counts["read"]  # pairs that the sources held
        self.dropped: dict[str, int] = counts["dropped"]  # cause -> pairs
        self.unknown_rate: tuple[float, float] = tuple(counts["unknown_rate"])  # share of UNK, src and trg tokens
        self.invalid: int = counts["invalid"]  # lines with invalid UTF-8

    def __len__(self) -> int:
        return len(self.src_lengths)

    def rows(self, indices: Sequence[int] | np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """The ids of some pairs, without BOS and EOS: source rows and target rows, int32."""
        src_rows: list[np.ndarray] = []
        trg_rows: list[np.ndarray] = []
        numbers = np.asarray(indices, dtype=np.int64)
        batches = np.searchsorted(self._starts, numbers, side="right") - 1
        for batch, at in zip(batches, numbers - self._starts[batches], strict=True):
            for (ends, values), rows in ((self._src[batch], src_rows), (self._trg[batch], trg_rows)):
                rows.append(values[ends[at] : ends[at + 1]].astype(np.int32))
        return src_rows, trg_rows


def build_store(
    bitexts: Sequence[Bitext],
    tokenizers: Tokenizers,
    filters: FilterSection,
    *,
    cache: Path | None = None,
    progress: Callable[[int], None] | None = None,
) -> TokenStore:
    """Tokenise and filter sentence pairs, or open what an earlier call has made of the same ones.

    `cache` is the folder of all stores: by default that of the environment variable MTKIT_CACHE, or else
    ~/.cache/mtkit. `progress` is called with the number of pairs read so far, and not at all if the store is
    found. Duplicates are looked for across all bitexts.

    Raises: DataError when a source cannot be read, no pair is left, or the cache cannot be written.
    """
    folder = cache if cache is not None else _default_cache()
    path = folder / f"pairs-{_key(bitexts, tokenizers, filters)}.arrow"
    store = _open(path)
    if store is None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _write(path, bitexts, tokenizers, filters, progress)
        except OSError as error:
            reason = error.strerror or str(error)
            raise DataError(f"{folder}: the cache cannot be written ({reason}); set MTKIT_CACHE") from error
        store = _open(path)
        if store is None:
            raise DataError(f"{path}: changed while it was written; is the disk sound?")
    if not len(store):
        counts = ", ".join(f"{cause} {n}" for cause, n in store.dropped.items() if n)
        names = ", ".join(bitext.name for bitext in bitexts)
        raise DataError(f"{names}: no sentence pair is left of {store.read}" + (f": {counts}" if counts else ""))
    return store


def _default_cache() -> Path:
    return Path(os.environ.get("MTKIT_CACHE") or Path.home() / ".cache" / "mtkit")


def _key(bitexts: Sequence[Bitext], tokenizers: Tokenizers, filters: FilterSection) -> str:
    parts = [
        FORMAT,
        json.dumps(filters.content(), separators=(",", ":")),
        tokenizers.src.fingerprint,
        tokenizers.trg.fingerprint,
    ]
    parts += [bitext.fingerprint() for bitext in bitexts]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def _open(path: Path) -> TokenStore | None:
    """A finished and undamaged store, or None."""
    try:
        counts = json.loads(_counts_path(path).read_text(encoding="utf-8"))
        if counts["hash"] != _file_hash(path):
            return None
        return TokenStore(path, counts)
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException):
        return None


def _counts_path(path: Path) -> Path:
    return path.with_suffix(".json")


def _file_hash(path: Path) -> str:
    digest = hashlib.blake2b(digest_size=16)
    with open(path, "rb") as stream:
        while chunk := stream.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _write(
    path: Path,
    bitexts: Sequence[Bitext],
    tokenizers: Tokenizers,
    filters: FilterSection,
    progress: Callable[[int], None] | None,
) -> None:
    """Make the store: both files aside, then renamed, the counts last because they say that it is complete."""
    pair_filter = PairFilter(filters)
    read = 0
    tokens, unknown = np.zeros(2, dtype=np.int64), np.zeros(2, dtype=np.int64)
    schema = pa.schema(
        [
            ("src", pa.list_(_narrowest(tokenizers.src.vocab_size))),
            ("trg", pa.list_(_narrowest(tokenizers.trg.vocab_size))),
        ]
    )
    aside = path.with_name(f".{path.name}.{os.getpid()}.part")
    counts_aside = aside.with_suffix(".counts")
    try:
        with pa.OSFile(str(aside), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
            for block in _blocks(itertools.chain.from_iterable(bitext.pairs() for bitext in bitexts)):
                src_ids = tokenizers.src.encode([src for src, _ in block])
                trg_ids = tokenizers.trg.encode([trg for _, trg in block])
                read += len(block)
                kept = pair_filter.keep(block, [len(ids) for ids in src_ids], [len(ids) for ids in trg_ids])
                sides = [[ids[i] for i in kept] for ids in (src_ids, trg_ids)]
                if kept:
                    columns = [_column(rows, field.type) for rows, field in zip(sides, schema, strict=True)]
                    writer.write_batch(pa.record_batch(columns, schema=schema))
                    for side, rows in enumerate(sides):
                        tokens[side] += sum(map(len, rows))
                        unknown[side] += sum(row.count(UNK_ID) for row in rows)
                if progress is not None:
                    progress(read)
        counts = {
            "read": read,
            "dropped": pair_filter.dropped,
            "unknown_rate": [float(rate) for rate in unknown / np.maximum(tokens, 1)],
            "invalid": sum(bitext.invalid for bitext in bitexts),
            "hash": _file_hash(aside),
        }
        counts_aside.write_text(json.dumps(counts, indent=1), encoding="utf-8")
        os.replace(aside, path)
        os.replace(counts_aside, _counts_path(path))
    finally:
        for leftover in (aside, counts_aside):
            with suppress(FileNotFoundError):
                leftover.unlink()


def _blocks(pairs: Iterable[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    iterator = iter(pairs)
    while block := list(itertools.islice(iterator, BLOCK_PAIRS)):
        yield block


def _narrowest(vocab_size: int) -> pa.DataType:
    """Two bytes a token where they are enough: half the disk, half the reads."""
    return pa.uint16() if vocab_size <= 1 << 16 else pa.int32()


# Arrays pass between numpy and Arrow as buffers: pa.array() and to_numpy() would import pandas for nothing.


def _column(rows: Sequence[Sequence[int]], list_type: pa.ListType) -> pa.ListArray:
    """Arrow's list array from rows of ids."""
    ends = np.cumsum([0, *map(len, rows)], dtype=np.int32)
    tokens = np.fromiter(itertools.chain.from_iterable(rows), dtype=str(list_type.value_type), count=ends[-1])
    values = pa.Array.from_buffers(list_type.value_type, len(tokens), [None, pa.py_buffer(tokens)])
    return pa.Array.from_buffers(list_type, len(rows), [None, pa.py_buffer(ends)], children=[values])


def _views(column: pa.ListArray) -> tuple[np.ndarray, np.ndarray]:
    """Row ends [rows + 1] and token values [tokens] of a memory-mapped column, without a copy."""
    _, ends, _, values = column.buffers()
    ends = np.frombuffer(ends, np.int32, count=len(column) + 1)
    return ends, np.frombuffer(values, str(column.type.value_type), count=ends[-1])


def _lengths(columns: Sequence[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """Tokens of each row, EOS included: int32 [pairs]."""
    return np.concatenate([np.zeros(0, np.int32), *(np.diff(ends).astype(np.int32) + 1 for ends, _ in columns)])
