"""The backends: one public file of this folder is one backend, and the folder listing is the registry."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from pydantic import BaseModel

from mtkit.errors import RequestError
from mtkit.models._protocol import Memory, Paper, State, Step, TranslationModel, in_eval_mode, select_rows

__all__ = [
    "Memory",
    "Paper",
    "State",
    "Step",
    "TranslationModel",
    "available",
    "build",
    "in_eval_mode",
    "load",
    "parse_config",
    "select_rows",
]


def available() -> list[str]:
    """Names of all backends: what a recipe may say as `model.type`."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))


def load(name: str) -> ModuleType:
    """The backend's module, with its `PAPER`, `Config`, `PRESETS` and `Model`.

    Raises: RequestError when there is no such backend.
    """
    if name not in available():
        near = difflib.get_close_matches(name, available(), n=1)
        hint = f"; did you mean '{near[0]}'?" if near else ""
        raise RequestError(f"model.type: expected one of {', '.join(available())}; got '{name}'{hint}")
    return importlib.import_module(f"{__name__}.{name}")


def parse_config(section: Mapping[str, Any]) -> BaseModel:
    """The backend's own frozen Config from a recipe's model section: preset first, then the keys given.

    Raises: RequestError for an unknown type or preset, pydantic.ValidationError for everything else.
    """
    backend = load(section["type"])
    given = {key: value for key, value in section.items() if key not in ("type", "preset")}
    preset = section.get("preset")
    if preset is None:
        return backend.Config(**given)
    if preset not in backend.PRESETS:
        raise RequestError(f"model.preset: expected one of {', '.join(backend.PRESETS)}; got '{preset}'")
    return backend.Config(**{**backend.PRESETS[preset].model_dump(), **given})


def build(section: Mapping[str, Any], src_vocab_size: int, trg_vocab_size: int, pad_id: int) -> TranslationModel:
    """A new model with random weights, from a recipe's model section."""
    return load(section["type"]).Model(parse_config(section), src_vocab_size, trg_vocab_size, pad_id)
