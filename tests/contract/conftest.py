"""Every backend that the folder listing finds, and every named variant of one, as a tiny model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch

from mtkit import models
from mtkit.text.tokenizer import PAD_ID

VOCAB_SIZE = 11
MakeModel = Callable[..., models.TranslationModel]

# Named variants of backends: the fields that differ from the preset `tiny`.

RNNENCDEC: dict[str, dict[str, Any]] = {}

RNNSEARCH: dict[str, dict[str, Any]] = {}

SEQ2SEQ: dict[str, dict[str, Any]] = {"forward": {"reverse_source": False}}

LUONG: dict[str, dict[str, Any]] = {
    "none": {"attention": "none", "input_feeding": False},
    "dot-unfed": {"score": "dot", "input_feeding": False},
    "general-unfed-forward": {"input_feeding": False, "reverse_source": False},
    "concat": {"score": "concat"},
    "concat-unfed": {"score": "concat", "input_feeding": False},
    "location": {"score": "location", "max_source_length": 32},
    "location-short": {"score": "location", "max_source_length": 3, "input_feeding": False},
    "local_m-dot": {"attention": "local_m", "score": "dot", "window": 2},
    "local_m-chapter-unfed": {"attention": "local_m", "gaussian": "chapter", "input_feeding": False, "window": 2},
    "local_p": {"attention": "local_p", "window": 2},
    "local_p-chapter": {"attention": "local_p", "gaussian": "chapter", "score": "concat", "window": 2},
    "local_p-unfed": {"attention": "local_p", "input_feeding": False, "window": 1},
    "local_m-narrow": {"attention": "local_m", "gaussian": "none", "window": 1},
}

CONVS2S: dict[str, dict[str, Any]] = {
    "varying_widths": {"encoder_widths": (8, 12, 16), "decoder_widths": (16, 12), "d_embedding": 10},
    "kernel_1": {"encoder_kernels": (3, 1), "decoder_kernels": (2, 1)},
    "dilated": {"encoder_dilations": (1, 3), "decoder_dilations": (2, 1), "decoder_kernels": (2, 3)},
    "shared_positions": {"max_positions": 2},
    "no_positions": {"max_positions": 0},
    "bytenet": {
        "encoder_dilations": (1, 2),
        "decoder_dilations": (1, 2),
        "attention": "none",
        "unfold": 1.2,
        "max_positions": 0,
    },
    "stacked": {"attention": "none", "decoder_widths": (12, 16)},
}

TRANSFORMER: dict[str, dict[str, Any]] = {
    "post": {"norm": "post"},
    "one-head": {"n_heads": 1},
    "mqa": {"kv": "mqa"},
    "gqa": {"kv": "gqa", "n_heads": 4, "n_kv_groups": 2},
    "mla": {"kv": "mla", "d_latent": 6},
    "narrow-keys": {"d_key": 3},
    "narrow-mqa": {"kv": "mqa", "d_key": 2},
    "narrow-mla": {"kv": "mla", "d_latent": 6, "d_key": 5},
    "windowed": {"window": 1},
    "learned": {"positions": "learned", "max_positions": 32},
    "learned-few": {"positions": "learned", "max_positions": 3},
    "no-positions": {"positions": "none"},
    "unscaled": {"scaled": False},
    "no-residual": {"residual": False},
    "no-norm": {"layer_norm": False, "n_layers": 1, "d_ff": 8},
    "two-way": {"tied_embeddings": "two_way"},
    "untied": {"tied_embeddings": "none"},
}

VARIANTS: dict[str, dict[str, dict[str, Any]]] = {
    "rnnencdec": RNNENCDEC,
    "rnnsearch": RNNSEARCH,
    "seq2seq": SEQ2SEQ,
    "luong": LUONG,
    "convs2s": CONVS2S,
    "transformer": TRANSFORMER,
}


class Case(NamedTuple):
    """A backend's preset `tiny`, and what a variant changes in it."""

    backend: str
    fields: dict[str, Any]


CASES = {name: Case(name, {}) for name in models.available()} | {
    f"{name}-{variant}": Case(name, fields)
    for name in models.available()
    for variant, fields in VARIANTS.get(name, {}).items()
}


@pytest.fixture(params=models.available())
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=CASES.values(), ids=CASES.keys())
def case(request: pytest.FixtureRequest) -> Case:
    return request.param


@pytest.fixture
def section(case: Case) -> dict[str, Any]:
    """The model section of a recipe."""
    return {"type": case.backend, "preset": "tiny", **case.fields}


@pytest.fixture
def make_model(section: dict[str, Any]) -> MakeModel:
    def make(**fields: float) -> models.TranslationModel:
        """In eval mode; the weights are moved off their initial values, so that no zero hides a fault."""
        torch.manual_seed(1)
        model = models.build({**section, **fields}, VOCAB_SIZE, VOCAB_SIZE, PAD_ID)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.2 * torch.randn_like(parameter))
        return model.eval()

    return make


@pytest.fixture
def model(make_model: MakeModel) -> models.TranslationModel:
    return make_model()
