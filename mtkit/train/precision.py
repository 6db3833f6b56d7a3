"""Which arithmetic the matrix products of training use."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Literal

import torch

from mtkit.errors import RequestError

_DEVICES = "--device: expected auto, cpu, cuda or cuda:N; got '{}'"
Precision = Literal["fp32", "bf16", "fp16"]


def resolve_device(wanted: str) -> torch.device:
    """`auto` is the GPU where there is one.

    Raises: RequestError for a device that is unknown or not there.
    """
    if wanted == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(wanted)
    except RuntimeError as error:
        raise RequestError(_DEVICES.format(wanted)) from error
    if device.type not in ("cpu", "cuda"):
        raise RequestError(_DEVICES.format(wanted))
    if device.type == "cuda" and not torch.cuda.is_available():
        raise RequestError(f"--device: '{wanted}' was asked for, but torch sees no CUDA device here")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise RequestError(f"--device: '{wanted}' was asked for, but torch sees {torch.cuda.device_count()} here")
    return device


def resolve_precision(wanted: str, device: torch.device) -> Precision:
    """`auto` is bf16 where the processor multiplies bf16 itself, fp32 elsewhere.

    Raises: RequestError for fp16 on a CPU, which has no loss scaling here.
    """
    if wanted == "fp16":
        if device.type != "cuda":
            raise RequestError("train.precision: fp16 needs a CUDA device; use bf16 or fp32 on a CPU")
        return "fp16"
    if wanted == "bf16" or (wanted == "auto" and _multiplies_bf16(device)):
        return "bf16"
    return "fp32"


def _multiplies_bf16(device: torch.device) -> bool:
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return device.type == "cpu" and cpu_multiplies_bf16()


def cpu_multiplies_bf16(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """AVX512-BF16 or AMX-BF16; an emulated bf16 product would be slower than fp32."""
    try:
        flags = cpuinfo.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return "avx512_bf16" in flags or "amx_bf16" in flags


def autocast(device: torch.device, precision: Precision) -> AbstractContextManager[None]:
    """Matrix products in `precision`; weights, optimizer state, softmax and loss stay fp32."""
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    return torch.autocast(device.type, dtype, enabled=precision != "fp32")
