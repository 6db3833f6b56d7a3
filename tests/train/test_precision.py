"""Which device and which arithmetic training uses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from mtkit.errors import RequestError
from mtkit.recipe import Recipe
from mtkit.train import precision
from mtkit.train.experiment import train
from mtkit.train.precision import autocast, cpu_multiplies_bf16, resolve_device, resolve_precision

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("flags : fpu sse2 avx512f avx512_bf16", True),
        ("flags : fpu amx_tile amx_bf16", True),
        ("flags : fpu avx2 avx512f", False),
        ("", False),
    ],
)
def test_bf16_is_for_processors_that_multiply_it(tmp_path: Path, flags: str, expected: bool) -> None:
    (tmp_path / "cpuinfo").write_text(flags, encoding="utf-8")
    assert cpu_multiplies_bf16(tmp_path / "cpuinfo") is expected


def test_a_system_that_tells_nothing_gets_fp32(tmp_path: Path) -> None:
    assert cpu_multiplies_bf16(tmp_path / "nosuch") is False


@pytest.mark.parametrize("can", [True, False])
def test_auto_follows_the_processor(monkeypatch: pytest.MonkeyPatch, can: bool) -> None:
    monkeypatch.setattr(precision, "cpu_multiplies_bf16", lambda: can)
    assert resolve_precision("auto", CPU) == ("bf16" if can else "fp32")
    assert resolve_precision("fp32", CPU) == "fp32"
    assert resolve_precision("bf16", CPU) == "bf16"


def test_fp16_on_a_cpu_is_refused() -> None:
    with pytest.raises(RequestError, match="train.precision: fp16 needs a CUDA device; use bf16 or fp32 on a CPU"):
        resolve_precision("fp16", CPU)


def test_a_device_that_is_unknown_or_missing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert resolve_device("auto") == CPU
    assert resolve_device("cpu") == CPU
    with pytest.raises(RequestError, match="--device: expected auto, cpu, cuda or cuda:N; got 'gpu'"):
        resolve_device("gpu")
    with pytest.raises(RequestError, match="--device: 'cuda' was asked for, but torch sees no CUDA device here"):
        resolve_device("cuda")


def test_products_are_in_the_precision_asked_for_and_weights_stay_single() -> None:
    layer = torch.nn.Linear(4, 4)
    x = torch.ones(2, 4)
    with autocast(CPU, "bf16"):
        assert layer(x).dtype == torch.bfloat16
    with autocast(CPU, "fp32"):
        assert layer(x).dtype == torch.float32
    assert layer.weight.dtype == torch.float32


@pytest.mark.parametrize(("wanted", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16)])
def test_a_run_learns_in_its_precision_and_looks_at_the_dev_set_in_single(
    make_recipe: Callable[..., Recipe], tmp_path: Path, wanted: str, dtype: torch.dtype
) -> None:
    seen: dict[bool, set[torch.dtype]] = {True: set(), False: set()}  # by whether the model is learning

    def look(module: nn.Module, _: Any, output: Any) -> None:
        if isinstance(module, nn.Linear):
            seen[module.training].add(output.dtype)

    hook = nn.modules.module.register_module_forward_hook(look)
    try:
        train(make_recipe(train={"updates": 1, "precision": wanted}), tmp_path / "run", device="cpu")
    finally:
        hook.remove()
    assert seen == {True: {dtype}, False: {torch.float32}}
