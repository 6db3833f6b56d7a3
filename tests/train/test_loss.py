"""The loss against its definition, torch's cross-entropy and values by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mtkit.data.batch import make_batch
from mtkit.train import loss
from mtkit.train.loss import output_loss, perplexity, plain_loss

D, V = 6, 23


def draw(n_tokens: int, bias: bool) -> tuple[nn.Linear, Tensor, Tensor]:
    torch.manual_seed(8)
    return nn.Linear(D, V, bias=bias), torch.randn(n_tokens, D, requires_grad=True), torch.randint(0, V, (n_tokens,))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_plain_loss_is_torchs_cross_entropy(smoothing: float) -> None:
    _, _, targets = draw(50, True)
    logits = torch.randn(50, V)
    found = plain_loss(logits, targets, smoothing)
    expected = F.cross_entropy(logits, targets, label_smoothing=smoothing, reduction="sum")
    assert found.smoothed.item() == pytest.approx(expected.item(), rel=1e-6)
    assert found.nll.item() == pytest.approx(F.cross_entropy(logits, targets, reduction="sum").item(), rel=1e-6)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("n_tokens", [1, 7, 50])
def test_the_piecewise_loss_is_the_plain_one_with_all_its_gradients(
    monkeypatch: pytest.MonkeyPatch, n_tokens: int, bias: bool, smoothing: float
) -> None:
    monkeypatch.setattr(loss, "_PIECE", 7)  # 50 tokens are eight pieces, the last one short
    output, features, targets = draw(n_tokens, bias)
    wanted = [features, *output.parameters()]
    plain = plain_loss(output(features), targets, smoothing)
    expected = torch.autograd.grad(plain.smoothed * 0.3, wanted)
    pieces = output_loss(output, features, targets, smoothing)
    found = torch.autograd.grad(pieces.smoothed * 0.3, wanted)
    assert pieces.smoothed.item() == pytest.approx(plain.smoothed.item(), rel=1e-5)
    assert pieces.nll.item() == pytest.approx(plain.nll.item(), rel=1e-5)
    for own, other in zip(found, expected, strict=True):
        assert torch.allclose(own, other, rtol=1e-5, atol=1e-6)


def test_the_gradient_of_one_token_by_hand() -> None:
    """d loss / d logits = softmax - smoothed target; equal logits over V = 4 and epsilon = 0.2."""
    output = nn.Linear(4, 4, bias=False)
    features = torch.zeros(1, 4, requires_grad=True)
    with torch.no_grad():
        output.weight.copy_(torch.eye(4))
    output_loss(output, features, torch.tensor([2]), 0.2).smoothed.backward()
    assert features.grad is not None
    # softmax 1/4 each; target 0.8 + 0.05 at token 2, 0.05 elsewhere
    assert features.grad[0].tolist() == pytest.approx([0.2, 0.2, -0.6, 0.2], abs=1e-6)


def test_other_output_layers_take_the_plain_path() -> None:
    output, features, targets = draw(9, True)
    wrapped = output_loss(nn.Sequential(output), features, targets, 0.1)
    assert wrapped.smoothed.item() == pytest.approx(
        output_loss(output, features, targets, 0.1).smoothed.item(), rel=1e-5
    )
    wrapped.smoothed.backward()
    assert features.grad is not None
    assert not wrapped.nll.requires_grad


def test_the_likelihood_carries_no_gradient() -> None:
    output, features, targets = draw(9, True)
    assert not output_loss(output, features, targets, 0.1).nll.requires_grad


def test_in_half_precision_the_sum_stays_in_single() -> None:
    output, features, targets = draw(50, True)
    exact = output_loss(output, features, targets, 0.1)
    with torch.autocast("cpu", torch.bfloat16):
        found = output_loss(output, features, targets, 0.1)
    assert found.smoothed.dtype == torch.float32
    assert found.smoothed.item() == pytest.approx(exact.smoothed.item(), rel=1e-2)
    found.smoothed.backward()
    assert output.weight.grad is not None
    assert output.weight.grad.dtype == torch.float32
    assert features.grad is not None
    assert features.grad.dtype == torch.float32


def test_a_uniform_model_costs_the_logarithm_of_its_vocabulary() -> None:
    output, features = nn.Linear(D, 8), torch.randn(5, D)
    nn.init.zeros_(output.weight)
    nn.init.zeros_(output.bias)
    found = output_loss(output, features, torch.tensor([1, 2, 3, 4, 7]), 0.1)
    per_token = found.nll.item() / 5
    assert per_token == pytest.approx(2.0794, abs=1e-4)  # ln 8
    assert per_token / math.log(2) == pytest.approx(3.0, abs=1e-5)
    assert perplexity(per_token) == pytest.approx(8.0, rel=1e-5)
    assert found.smoothed.item() == pytest.approx(found.nll.item(), rel=1e-6), "smoothing a uniform model is free"


def test_padding_counts_neither_in_the_sum_nor_in_the_divisor() -> None:
    """V = 4, equal logits, three tokens (two of them EOS) and one of padding: ln 4 and perplexity 4."""
    batch = make_batch([[1], [1]], [[1], []])
    assert batch.trg_out.tolist() == [[1, 3], [3, 0]]
    assert batch.n_trg_tokens == 3
    output = nn.Linear(D, 4)
    nn.init.zeros_(output.weight)
    nn.init.zeros_(output.bias)
    real = batch.trg_out != 0
    nll = output_loss(output, torch.randn(2, 2, D)[real], batch.trg_out[real], 0.0).nll.item()
    assert nll / batch.n_trg_tokens == pytest.approx(1.3863, abs=1e-4)
    assert perplexity(nll / batch.n_trg_tokens) == pytest.approx(4.0, rel=1e-5)


def test_the_perplexity_of_a_lost_model_is_infinite_and_no_error() -> None:
    assert perplexity(800.0) == math.inf
    assert perplexity(math.inf) == math.inf
    assert perplexity(0.0) == 1.0
    assert perplexity(math.log(50)) == pytest.approx(50)
    assert perplexity(699.0) == math.exp(699.0)


def test_large_logits_stay_finite() -> None:
    output = nn.Linear(1, 3, bias=False)
    with torch.no_grad():
        output.weight.copy_(torch.tensor([[1000.0], [0.0], [-1000.0]]))
    features = torch.ones(1, 1, requires_grad=True)
    found = output_loss(output, features, torch.tensor([2]), 0.0)
    assert found.nll.item() == pytest.approx(2000.0)
    found.smoothed.backward()
    assert features.grad is not None
    assert features.grad.item() == pytest.approx(2000.0)  # weight[0] - weight[2]
