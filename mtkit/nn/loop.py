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
        self.read: list[Tensor] = []
        self.came_back: list[Tensor] = []
        self.weight = weight.detach()
        # Every use depends on this scalar, so that autograd calls its backward when all uses are done.
        self._token = _CollectGradient.apply(weight, self)

    def __call__(self, x: Tensor) -> Tensor:
        return _Use.apply(x.to(self.weight.dtype), self._token, self)

    def gradient(self) -> Tensor:
        """Of the weight, after the last step has come back."""
        read, came_back = torch.cat(self.read), torch.cat(self.came_back)
        self.read, self.came_back = [], []
        return torch.mm(came_back.t(), read)


class _CollectGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, loop: LoopLinear) -> Tensor:
        ctx.loop = loop
        return weight.new_zeros(())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: Tensor) -> tuple[Tensor, None]:
        return ctx.loop.gradient(), None


class _Use(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, token: Tensor, loop: LoopLinear) -> Tensor:
        ctx.save_for_backward(x)
        ctx.loop = loop
        with torch.autocast(x.device.type, enabled=False):
            return torch.matmul(x, loop.weight.t())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_result: Tensor) -> tuple[Tensor, Tensor, None]:
        (x,) = ctx.saved_tensors
        loop: LoopLinear = ctx.loop
        loop.read.append(x.flatten(0, -2))
        loop.came_back.append(d_result.flatten(0, -2))
        with torch.autocast(x.device.type, enabled=False):
            return torch.matmul(d_result, loop.weight), x.new_zeros(()), None
