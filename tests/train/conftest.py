"""A bitext of digits and recipes for it, small enough for a run in a second."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mtkit.models import parse_config
from mtkit.recipe import Recipe, load_recipe

N_TRAIN, N_DEV = 60, 6


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with train.a, train.b, dev.a, dev.b: the same digits on both sides."""
    folder = tmp_path_factory.mktemp("digits")
    draw = random.Random(7)
    for name, count in (("train", N_TRAIN), ("dev", N_DEV)):
        lines = [" ".join(draw.choices("0123456789", k=draw.randint(1, 6))) for _ in range(count)]
        for side in ("a", "b"):
            (folder / f"{name}.{side}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return folder


@pytest.fixture
def recipe_file(digits: Path, tmp_path: Path) -> Callable[..., Path]:
    """(name="toy", data={…}, text={…}, model={…}, train={…}) -> a recipe file with these keys changed."""

    def write(name: str = "toy", **sections: dict[str, Any]) -> Path:
        keys: dict[str, Any] = {
            "data": {"src": "a", "trg": "b", "root": str(digits), "train": "train", "dev": "dev"},
            "text": {"subword": "word", "vocab_size": 20},
            "model": {"type": "transformer", "preset": "tiny", "n_layers": 1, "dropout": 0.1},
            "train": {
                "updates": 4,
                "batch_tokens": 50,
                "lr": 0.01,
                "warmup_updates": 4,
                "report_every": 1,
                "validate_every": 100,
                "save_every": 100,
                "sample_translations": 1,
                "precision": "fp32",
            },
        }
        for section, changes in sections.items():
            keys[section] = {**keys.get(section, {}), **changes}
        path = tmp_path / f"{name}.yaml"
        path.write_text(json.dumps({"name": name, **keys}), encoding="utf-8")  # JSON is YAML
        return path

    return write


@pytest.fixture
def make_recipe(recipe_file: Callable[..., Path]) -> Callable[..., Recipe]:
    """The recipe of `recipe_file`, loaded as the command line does it."""

    def make(**sections: dict[str, Any]) -> Recipe:
        return load_recipe(recipe_file(**sections), parse_model=parse_config)

    return make
