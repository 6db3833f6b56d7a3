"""Several models that answer as one (Sutskever et al. 2014, §3.6; Luong et al. 2015, §4)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from mtkit import checkpoint
from mtkit.errors import RequestError
from mtkit.models import Memory, State, Step, TranslationModel
from mtkit.text.tokenizer import Tokenizer, Tokenizers


class Ensemble(TranslationModel):
    """The mean of the models' next-word distributions, at every step.

    The models may be of any backends and read other source tokens, but write one target vocabulary: their sources are
    encoded by each model on its own and brought together by `join`. Attention is the mean over the models that have
    some and read the same source tokens as the first: rows over different tokens have no mean.

    Args:
        members: in eval mode, on one device.
        reads_as_first: for each member, whether it reads the first one's source tokens; default: all do.
    """

    def __init__(self, members: Sequence[TranslationModel], reads_as_first: Sequence[bool] | None = None) -> None:
        super().__init__()
        self.members = cast("Sequence[TranslationModel]", nn.ModuleList(members))
        alike = reads_as_first or [True] * len(members)
        self.asked = [member.has_attention and same for member, same in zip(members, alike, strict=True)]
        self.has_attention = any(self.asked)
        self.output = nn.Identity()
        self.eval()

    def encode(self, src: Tensor, src_pad_mask: Tensor) -> Memory:
        """Every member reads the same source tokens."""
        return self.join([member.encode(src, src_pad_mask) for member in self.members])

    def join(self, memories: Sequence[Memory]) -> Memory:
        """One memory from the members' own, all of the same sentences."""
        return Memory(memories[0].states, memories[0].src_pad_mask, tuple(memories))

    def start(self, memory: Memory) -> State:
        return tuple(member.start(own) for member, own in zip(self.members, memory.cache, strict=True))

    def step(self, prev: Tensor, state: State, memory: Memory, *, need_attention: bool = False) -> Step:
        steps = [
            member.step(prev, own_state, own_memory, need_attention=need_attention and asked)
            for member, own_state, own_memory, asked in zip(self.members, state, memory.cache, self.asked, strict=True)
        ]
        attention = [step.attention for step in steps if step.attention is not None]
        mean = torch.stack(attention).mean(0) if attention else None
        return Step(_log_mean([step.logits for step in steps]), tuple(step.state for step in steps), mean)

    def features(self, src: Tensor, src_pad_mask: Tensor, trg_in: Tensor) -> Tensor:
        """Log-probabilities, [batch, trg_len, trg_vocab]: the output layer has nothing left to do."""
        return _log_mean([member(src, src_pad_mask, trg_in) for member in self.members])


def _log_mean(logits: Sequence[Tensor]) -> Tensor:
    """The logarithm of the mean of the distributions, [..., trg_vocab], in fp32 or better."""
    log_probs = [each.log_softmax(-1, dtype=torch.promote_types(each.dtype, torch.float32)) for each in logits]
    return torch.logsumexp(torch.stack(log_probs), dim=0) - math.log(len(log_probs))


class Joined(NamedTuple):
    """An ensemble and what its members read."""

    model: TranslationModel
    src_tokenizers: list[Tokenizer]  # of each member


def join_models(models: Sequence[TranslationModel], tokenizers: Sequence[Tokenizers], names: Sequence[str]) -> Joined:
    """One model of several; a single one stays as it is.

    Raises: RequestError, with the models' names, when two do not share their target vocabulary.
    """
    first = tokenizers[0]
    for name, other in zip(names, tokenizers, strict=True):
        if other.trg.fingerprint != first.trg.fingerprint:
            raise RequestError(
                f"an ensemble needs models of one target vocabulary; {names[0]} and {name} have different ones"
            )
    sources = [each.src for each in tokenizers]
    if len(models) == 1:
        return Joined(models[0], sources)
    return Joined(Ensemble(models, [each.fingerprint == first.src.fingerprint for each in sources]), sources)


def load_ensemble(
    folders: Sequence[Path], *, device: str | torch.device = "cpu"
) -> tuple[list[checkpoint.LoadedModel], Joined]:
    """The models, of which the first one's recipe says how to search, and all of them as one.

    Raises: ModelError, and RequestError as `join_models`.
    """
    loaded = [checkpoint.load_model(folder, device=device) for folder in folders]
    names = [str(folder) for folder in folders]
    return loaded, join_models([each.model for each in loaded], [each.tokenizers for each in loaded], names)
