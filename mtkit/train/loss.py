"""Token cross-entropy in nats, with label smoothing, fused with the output layer.

The output layer is the largest matrix of a translator and its logits, tokens x vocabulary, the largest tensor of
an update. `output_loss` never holds them all: it walks over the tokens in pieces, and makes the gradients of each
piece while its logits are there. Gradients of a sum over tokens do not depend on what comes after, only on one
factor, so the backward pass is a multiplication.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mtkit.nn.recurrent import matmul_dtype

_PIECE = 1024  # tokens whose logits are held at a time


class TokenLoss(NamedTuple):
    """Sums over target tokens, in nats."""

    smoothed: Tensor  # what is minimised: cross-entropy against the smoothed target
    nll: Tensor  # negative log-likelihood of the reference, what perplexity is made of; carries no gradient


def output_loss(output: nn.Module, features: Tensor, targets: Tensor, smoothing: float) -> TokenLoss:
    """The loss of `output(features)` against `targets`, summed over all tokens given (no padding among them).

    Args:
        output: the model's last layer; an nn.Linear takes the piecewise path, anything else the plain one.
        features: [tokens, d_out]
        targets: [tokens], token ids
        smoothing: epsilon; the target distribution is (1 - epsilon) on the reference and epsilon spread evenly
            over the whole vocabulary (Szegedy et al. 2016, §7, as used by Vaswani et al. 2017, §5.4).
    """
    if isinstance(output, nn.Linear):
        smoothed, nll = _PiecewiseLoss.apply(
            features, output.weight, output.bias, targets, smoothing, torch.is_grad_enabled()
        )
        return TokenLoss(smoothed, nll)
    return plain_loss(output(features), targets, smoothing)


def plain_loss(logits: Tensor, targets: Tensor, smoothing: float) -> TokenLoss:
    """The same from logits [tokens, vocab]; the definition that `output_loss` is tested against."""
    log_probs = F.log_softmax(logits, dim=-1, dtype=torch.float32)
    nll = -log_probs.gather(1, targets[:, None]).sum()
    smoothed = (1 - smoothing) * nll - smoothing * log_probs.mean(-1).sum()
    return TokenLoss(smoothed, nll.detach())


class _PiecewiseLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        smoothing: float,
        need_gradient: bool,
    ) -> tuple[Tensor, Tensor]:
        dtype = matmul_dtype(features)  # a custom function has to ask for itself
        features_p, weight_p = features.to(dtype), weight.to(dtype)
        vocab_size = weight.size(0)
        # Sums in float32 would lose digits over a large batch; one float64 scalar costs nothing.
        smoothed = torch.zeros((), dtype=torch.float64, device=features.device)
        nll = torch.zeros_like(smoothed)
        grad_features = torch.empty_like(features_p) if need_gradient else None
        grad_weight = torch.zeros(weight.shape, dtype=torch.float32, device=weight.device) if need_gradient else None
        grad_bias = torch.zeros_like(bias, dtype=torch.float32) if need_gradient and bias is not None else None
        for start in range(0, features.size(0), _PIECE):
            piece = slice(start, start + _PIECE)
            logits = F.linear(features_p[piece], weight_p).float()
            if bias is not None:
                logits += bias.float()
            wanted = targets[piece, None]
            n_tokens = logits.size(0)
            # Everything that needs the logits themselves comes first; then they become the softmax in place.
            sum_wanted = logits.gather(1, wanted).sum(dtype=torch.float64)
            sum_means = logits.sum(1).sum(dtype=torch.float64) / vocab_size if smoothing else 0.0
            largest = logits.amax(dim=1, keepdim=True)
            exponentials = logits.sub_(largest).exp_()
            normalisers = exponentials.sum(dim=1, keepdim=True)
            sum_log_norms = (normalisers.log() + largest).sum(dtype=torch.float64)
            nll += sum_log_norms - sum_wanted
            smoothed += sum_log_norms - (1 - smoothing) * sum_wanted - smoothing * sum_means
            if grad_features is None or grad_weight is None:
                continue
            # d loss / d logits = softmax - smoothed target
            grad = exponentials.div_(normalisers)
            if smoothing:
                grad -= smoothing / vocab_size
            grad.scatter_add_(1, wanted, torch.full((n_tokens, 1), smoothing - 1, dtype=grad.dtype, device=grad.device))
            if grad_bias is not None:
                grad_bias += grad.sum(0)
            grad = grad.to(dtype)
            grad_features[piece] = grad @ weight_p
            grad_weight += grad.t() @ features_p[piece]
        ctx.dtypes = (features.dtype, weight.dtype)
        ctx.save_for_backward(grad_features, grad_weight, grad_bias)
        ctx.mark_non_differentiable(nll_out := nll.float())
        return smoothed.float(), nll_out

    @staticmethod
    def backward(ctx: Any, grad_smoothed: Tensor, _grad_nll: Tensor) -> tuple[Tensor | None, ...]:
        grad_features, grad_weight, grad_bias = ctx.saved_tensors
        features_dtype, weight_dtype = ctx.dtypes
        return (
            (grad_features * grad_smoothed).to(features_dtype),
            (grad_weight * grad_smoothed).to(weight_dtype),
            None if grad_bias is None else grad_bias * grad_smoothed,
            None,
            None,
            None,
        )


def perplexity(loss_nats: float) -> float:
    """exp of nats per token; infinity where that overflows."""
    return math.exp(loss_nats) if loss_nats < 700 else math.inf
