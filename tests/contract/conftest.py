"""Every backend that the folder listing finds, as a tiny model."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from mtkit import models
from mtkit.text.tokenizer import PAD_ID

VOCAB_SIZE = 11
MakeModel = Callable[..., models.TranslationModel]


@pytest.fixture(params=models.available())
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def make_model(backend: str) -> MakeModel:
    def make(**fields: float) -> models.TranslationModel:
        """In eval mode; the weights are moved off their initial values, so that no zero hides a fault."""
        torch.manual_seed(1)
        model = models.build({"type": backend, "preset": "tiny", **fields}, VOCAB_SIZE, VOCAB_SIZE, PAD_ID)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.2 * torch.randn_like(parameter))
        return model.eval()

    return make


@pytest.fixture
def model(make_model: MakeModel) -> models.TranslationModel:
    return make_model()
