"""A product with one weight at every step of a loop, whose weight gradient is made once, after the loop.

Autograd alone would make a gradient as large as the weight at every step and add them all up. Here each step keeps what
it read and what came back, and one product over all steps makes the gradient: faster and, in bf16, summed in full
precision.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class LoopLinear:
    """x -> x W^T, [..., d_in] -> [..., d_out], for one pass of a loop; `weight` [d_out, d_in] in its type."""

    def __init__(self, weight: Tensor) -> None:
        self._steps = _Steps(weight.detach())
        # Every use depends on this scalar, so that autograd calls its backward when all uses are done.
        self._token = _CollectGradient.apply(weight, self._steps)

    def __call__(self, x: Tensor) -> Tensor:
        return _Use.apply(x.to(self._steps.weight.dtype), self._token, self._steps)


class _Steps:
    """What each step read and what came back.

    Autograd's nodes lead here and not to the loop, whose token leads to them: a cycle would keep the copy of the weight
    and all that was read until Python looks for cycles, or for good where only some gradients are asked for.
    """

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight
        self.read: list[Tensor] = []
        self.came_back: list[Tensor] = []

    def gradient(self) -> Tensor:
        """Of the weight, after the last step has come back."""
        read, came_back = torch.cat(self.read), torch.cat(self.came_back)
        self.read, self.came_back = [], []
        return torch.mm(came_back.t(), read)


class _CollectGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, steps: _Steps) -> Tensor:
        ctx.steps = steps
        return weight.new_zeros(())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: Tensor) -> tuple[Tensor, None]:
        return ctx.steps.gradient(), None


class _Use(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, token: Tensor, steps: _Steps) -> Tensor:
        ctx.save_for_backward(x)
        ctx.steps = steps
        with torch.autocast(x.device.type, enabled=False):
            return torch.matmul(x, steps.weight.t())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_result: Tensor) -> tuple[Tensor, Tensor, None]:
        (x,) = ctx.saved_tensors
        steps: _Steps = ctx.steps
        steps.read.append(x.detach().flatten(0, -2))
        steps.came_back.append(d_result.flatten(0, -2))
        with torch.autocast(x.device.type, enabled=False):
            return torch.matmul(d_result, steps.weight), x.new_zeros(()), None
