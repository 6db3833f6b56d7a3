"""What every backend answers to, and all that search and training know of a model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, model_validator
from torch import Tensor, nn

State = Any  # a backend's own NamedTuple: nested tuples of tensors, row 0 is the batch
Tree = TypeVar("Tree")


class Paper(NamedTuple):
    """Where a backend was published."""

    authors: str
    year: int
    title: str
    url: str


class BackendConfig(BaseModel):
    """What every backend's Config is: unknown keys are refused, nothing changes after reading, no key is in vain."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    ONLY_WITH: ClassVar[dict[str, tuple[str, tuple[str, ...]]]] = {}
    """Keys that do nothing but with some values of another, and so may only have their default elsewhere."""

    @model_validator(mode="after")
    def _says_nothing_in_vain(self) -> BackendConfig:
        for key, (other, fitting) in self.ONLY_WITH.items():
            value, got = getattr(self, key), getattr(self, other)
            if got not in fitting and value != type(self).model_fields[key].default:
                shown = f"{value:g}" if isinstance(value, float) else value
                raise ValueError(f"{key}: {shown} needs {other} {' or '.join(fitting)}, got {got}")
        return self


class Memory(NamedTuple):
    """What the decoder may know of the source; built once, never reordered inside a sentence."""

    states: Tensor  # [batch, src_len, d_enc]
    src_pad_mask: Tensor  # [batch, src_len], True = padding
    cache: Any = ()  # what can be computed once: projected keys, cross-attention keys and values


class Step(NamedTuple):
    """One decoding step."""

    logits: Tensor  # [batch, trg_vocab]
    state: State  # depends on the target prefix alone
    attention: Tensor | None  # [batch, src_len], row sums <= 1; None unless asked for


class TranslationModel(nn.Module, ABC):
    """A translator as search and training see it.

    `prev` and `state` may have k rows for each row of `memory` (k = beam size): row i belongs to
    memory row i // k, so the beams of a sentence share its memory without a copy.
    """

    has_attention: bool  # of the class, or of this model where its Config decides
    output: nn.Module  # last layer, decoder features -> logits; the training loss fuses with it

    @abstractmethod
    def encode(self, src: Tensor, src_pad_mask: Tensor) -> Memory:
        """Read the source: `src` [batch, src_len] with EOS at its end, True in `src_pad_mask` = padding."""

    @abstractmethod
    def start(self, memory: Memory) -> State:
        """The decoder state before the first target token, one row per row of `memory`."""

    @abstractmethod
    def step(self, prev: Tensor, state: State, memory: Memory, *, need_attention: bool = False) -> Step:
        """Read the previous target token, `prev` [batch], and score the next; arguments stay unchanged."""

    @abstractmethod
    def features(self, src: Tensor, src_pad_mask: Tensor, trg_in: Tensor) -> Tensor:
        """Teacher forcing up to the output layer: [batch, trg_len, d_out]."""

    def forward(self, src: Tensor, src_pad_mask: Tensor, trg_in: Tensor) -> Tensor:
        """Teacher forcing: logits [batch, trg_len, trg_vocab]; `trg_in` starts with BOS."""
        return self.output(self.features(src, src_pad_mask, trg_in))


@contextmanager
def in_eval_mode(model: nn.Module) -> Iterator[None]:
    """Without dropout and the like; afterwards the model is in the mode that it was in."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


def select_rows(tree: Tree, rows: Tensor) -> Tree:
    """Repeat, reorder or drop batch rows of a memory, a state or a beam; `rows` holds row numbers."""
    if isinstance(tree, Tensor):
        return tree.index_select(0, rows)  # type: ignore[return-value]
    if isinstance(tree, tuple):
        parts = [select_rows(part, rows) for part in tree]
        return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)  # type: ignore[return-value]
    return tree
