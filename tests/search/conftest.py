"""A model whose next-token probabilities are written down in the test."""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Callable, Mapping
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn

from mtkit.models import Memory, Step, TranslationModel

Prefix = tuple[int, ...]
Probabilities = Callable[[Prefix, Prefix], Mapping[int, float]]  # (source without EOS, prefix) -> token -> probability


class Counter(NamedTuple):
    """A state of the shape that real models have: tensors inside tuples."""

    prefix: Tensor  # [rows, trg_len]
    nested: tuple[Tensor]  # the same again


class TableModel(TranslationModel):
    """Looks the next token up; all attention is on one column, the sum of the prefix modulo the source length."""

    has_attention = True

    def __init__(self, probabilities: Probabilities, vocab_size: int) -> None:
        super().__init__()
        self.output = nn.Identity()
        self.probabilities = probabilities
        self.vocab_size = vocab_size
        self.seen: list[tuple[int, int]] = []  # (memory rows, decoder rows) of each step
        self.read: list[list[Prefix]] = []  # the sources of each batch

    def encode(self, src: Tensor, src_pad_mask: Tensor) -> Memory:
        lengths = (~src_pad_mask).sum(1).tolist()
        self.read.append([tuple(row[: n - 1]) for row, n in zip(src.tolist(), lengths, strict=True)])
        return Memory(src, src_pad_mask)

    def start(self, memory: Memory) -> Counter:
        nothing = memory.states[:, :0]
        return Counter(nothing, (nothing,))

    def step(self, prev: Tensor, state: Counter, memory: Memory, *, need_attention: bool = False) -> Step:
        prefix = torch.cat([state.prefix, prev[:, None]], dim=1)
        nested = torch.cat([state.nested[0], prev[:, None]], dim=1)
        assert torch.equal(prefix, nested)
        assert len(prefix) % len(memory.states) == 0
        self.seen.append((len(memory.states), len(prefix)))
        width = len(prefix) // len(memory.states)
        lengths = (~memory.src_pad_mask).sum(1).tolist()
        logits = torch.full((len(prefix), self.vocab_size), -math.inf)
        attention = torch.zeros(len(prefix), memory.states.shape[1])
        for i, row in enumerate(prefix.tolist()):
            n = lengths[i // width]
            source = tuple(memory.states[i // width, : n - 1].tolist())
            for token, probability in self.probabilities(source, tuple(row[1:])).items():
                logits[i, token] = math.log(probability) if probability else -math.inf
            attention[i, sum(row[1:]) % n] = 1.0
        return Step(logits, Counter(prefix, (nested,)), attention if need_attention else None)

    def features(self, src: Tensor, src_pad_mask: Tensor, trg_in: Tensor) -> Tensor:
        raise NotImplementedError


@pytest.fixture
def table_model() -> Callable[..., TableModel]:
    """TableModel(probabilities, vocab_size); a probability that is not given is 0."""
    return TableModel


@pytest.fixture
def random_probabilities() -> Callable[..., Probabilities]:
    """(seed, vocab_size) -> a fixed random distribution over all tokens for every source and prefix."""

    def make(seed: int, vocab_size: int, sharpness: float = 2.0) -> Probabilities:
        @functools.cache
        def probabilities(source: Prefix, prefix: Prefix) -> dict[int, float]:
            draw = random.Random(f"{seed} {source} {prefix}")
            weights = [2.718281828 ** (sharpness * draw.gauss(0, 1)) for _ in range(vocab_size)]
            return {token: weight / sum(weights) for token, weight in enumerate(weights)}

        return probabilities

    return make
