"""Dev loss and dev BLEU."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from mtkit.models import Memory, State, Step, TranslationModel
from mtkit.text.tokenizer import Tokenizers, learn
from mtkit.train.validation import DevSet, dev_loss, make_dev_set, validate

CPU = torch.device("cpu")
V = 8


class Fixed(TranslationModel):
    """The same probabilities everywhere, whatever it reads."""

    has_attention = False

    def __init__(self, probabilities: list[float]) -> None:
        super().__init__()
        self.output = nn.Linear(1, len(probabilities))
        with torch.no_grad():
            self.output.weight.zero_()
            self.output.bias.copy_(torch.tensor(probabilities).log())
        self.batch_shapes: list[tuple[int, ...]] = []

    def features(self, src: Tensor, src_pad_mask: Tensor, trg_in: Tensor) -> Tensor:
        self.batch_shapes.append(tuple(trg_in.shape))
        assert not self.training
        return torch.ones(*trg_in.shape, 1)

    def encode(self, src: Tensor, src_pad_mask: Tensor) -> Memory:
        raise NotImplementedError

    def start(self, memory: Memory) -> State:
        raise NotImplementedError

    def step(self, prev: Tensor, state: State, memory: Memory, *, need_attention: bool = False) -> Step:
        raise NotImplementedError


def dev_set(trg_rows: list[list[int]]) -> DevSet:
    rows = [np.array(row, dtype=np.int32) for row in trg_rows]
    return DevSet([], [], [np.array([4], dtype=np.int32)] * len(rows), rows)


def test_the_dev_loss_is_nats_per_token_with_the_end_and_without_padding() -> None:
    probabilities = [0.05, 0.05, 0.05, 0.25, 0.5, 0.1]  # EOS is 3
    dev = dev_set([[4, 4, 4], [5], []])
    # 3 x p(4), 1 x p(5), 3 x p(EOS)
    expected = -(3 * math.log(0.5) + math.log(0.1) + 3 * math.log(0.25)) / 7
    assert dev_loss(Fixed(probabilities).eval(), dev, 1000, CPU) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("batch_tokens", [1, 4, 100])
def test_every_sentence_is_scored_however_it_is_batched_and_however_long(batch_tokens: int) -> None:
    """The last one is longer than any budget but the largest."""
    dev = dev_set([[4], [5, 5], [4] * 50])
    probabilities = [0.1, 0.1, 0.1, 0.1, 0.4, 0.2]
    expected = -(51 * math.log(0.4) + 2 * math.log(0.2) + 3 * math.log(0.1)) / 56
    model = Fixed(probabilities).eval()
    assert dev_loss(model, dev, batch_tokens, CPU) == pytest.approx(expected, rel=1e-6)
    assert sum(shape[0] for shape in model.batch_shapes) == 3


def test_the_loss_of_equal_probabilities_is_the_logarithm_of_the_vocabulary() -> None:
    assert dev_loss(Fixed([1 / V] * V).eval(), dev_set([[4, 5], [6]]), 100, CPU) == pytest.approx(2.0794, abs=1e-4)


@pytest.fixture(scope="module")
def tokenizers() -> Tokenizers:
    joint = learn(["x y z", "y z x"], kind="word", vocab_size=7)
    return Tokenizers(joint, joint, True)


def test_a_dev_set_is_tokenised_whole(tokenizers: Tokenizers) -> None:
    dev = make_dev_set([("x y", "y x"), ("", "z"), ("x " * 300, "z")], tokenizers)
    assert [len(row) for row in dev.src_rows] == [2, 0, 300]
    assert tokenizers.trg.decode([row.tolist() for row in dev.trg_rows]) == ["y x", "z", "z"]
    assert dev.references == ["y x", "z", "z"]


class Spoken:
    """A translator that says what it is told."""

    def __init__(self, texts: list[str]) -> None:
        self.texts = texts

    def translate(self, lines: list[str], *, before_batch: object = None) -> list[Any]:
        assert len(lines) == len(self.texts)
        return [type("Said", (), {"text": text})() for text in self.texts]


def test_dev_bleu_is_that_of_the_text_from_0_to_100(tokenizers: Tokenizers) -> None:
    pairs = [("x y z x y", "x y z x y"), ("z", "z z z z z")]
    dev = make_dev_set(pairs, tokenizers)
    model = Fixed([1 / 7] * 7).train()
    perfect = validate(model, Spoken([trg for _, trg in pairs]), dev, 100, "b", CPU)  # type: ignore[arg-type]
    assert perfect.bleu == pytest.approx(100.0)
    assert "tok:13a" in perfect.signature
    assert perfect.loss_nats == pytest.approx(math.log(7), rel=1e-6)
    assert model.training, "the model goes on training"


def test_dev_bleu_cuts_words_as_its_language_asks(tokenizers: Tokenizers) -> None:
    """In Chinese each character is a word: of five in a row the first four are right."""
    dev = make_dev_set([("x", "我吃苹果了")], tokenizers)
    model = Fixed([1 / 7] * 7)
    found = {lang: validate(model, Spoken(["我吃苹果吗"]), dev, 100, lang, CPU) for lang in ("zh", "de")}  # type: ignore[arg-type]
    assert "tok:zh" in found["zh"].signature and "tok:13a" in found["de"].signature
    assert found["zh"].bleu == pytest.approx(100 * (4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** 0.25)
    assert found["de"].bleu == 0


def test_the_model_trains_on_after_a_validation_that_failed(tokenizers: Tokenizers) -> None:
    model = Fixed([1 / 7] * 7).train()
    with pytest.raises(AssertionError):
        validate(model, Spoken([]), make_dev_set([("x", "x")], tokenizers), 100, "b", CPU)  # type: ignore[arg-type]
    assert model.training
