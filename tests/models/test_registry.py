"""The registry: the folder listing, and a recipe's model section."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from pydantic import BaseModel, ValidationError

from mtkit import models
from mtkit.errors import RequestError


def test_the_backends_are_the_public_files_of_the_folder() -> None:
    folder = Path(models.__file__).parent
    files = {path.stem for path in folder.glob("*.py") if not path.stem.startswith("_")}
    assert models.available() == sorted(files)
    assert "transformer" in models.available()


@pytest.mark.parametrize("name", models.available())
def test_a_backend_has_what_the_registry_needs(name: str) -> None:
    backend = models.load(name)
    assert issubclass(backend.Config, BaseModel)
    assert backend.Config.model_config["frozen"] is True
    assert issubclass(backend.Model, models.TranslationModel)
    assert backend.PRESETS
    assert all(isinstance(config, backend.Config) for config in backend.PRESETS.values())
    assert backend.Config(), "every size has a default"
    assert backend.__doc__
    for preset, config in backend.PRESETS.items():
        assert models.parse_config({"type": name, "preset": preset}) == config


def test_an_unknown_backend_is_refused_with_the_nearest_name() -> None:
    listing = ", ".join(models.available())
    with pytest.raises(RequestError) as caught:
        models.load("tranformer")
    assert str(caught.value) == (
        f"model.type: expected one of {listing}; got 'tranformer'; did you mean 'transformer'?"
    )
    with pytest.raises(RequestError, match="got '_protocol'$"):
        models.load("_protocol")


def test_a_preset_is_overridden_by_the_keys_given() -> None:
    config = models.parse_config({"type": "transformer", "preset": "big", "dropout": 0.1}).model_dump()
    assert (config["d_model"], config["n_heads"], config["dropout"]) == (1024, 16, 0.1)


def test_the_relations_hold_for_a_changed_preset_too() -> None:
    with pytest.raises(ValidationError, match="n_heads: 7 does not divide d_model 1024"):
        models.parse_config({"type": "transformer", "preset": "big", "n_heads": 7})


def test_an_unknown_preset_and_an_unknown_key_are_refused() -> None:
    with pytest.raises(RequestError, match="model.preset: expected one of base, big, small, tiny; got 'huge'"):
        models.parse_config({"type": "transformer", "preset": "huge"})
    with pytest.raises(ValidationError, match="n_headz"):
        models.parse_config({"type": "transformer", "n_headz": 2})


@pytest.mark.parametrize("name", models.available())
def test_the_same_seed_builds_the_same_model(name: str) -> None:
    preset = "tiny" if "tiny" in models.load(name).PRESETS else next(iter(models.load(name).PRESETS))

    def build() -> dict[str, torch.Tensor]:
        torch.manual_seed(9)
        return dict(models.build({"type": name, "preset": preset}, 20, 20, 0).named_parameters())

    first, second = build(), build()
    assert all(torch.equal(first[key], second[key]) for key in first)


def test_rows_are_picked_through_nested_tuples() -> None:
    memory = models.Memory(torch.arange(6).view(3, 2), torch.eye(3).bool(), (torch.arange(3), (torch.arange(3) * 2,)))
    picked = models.select_rows(memory, torch.tensor([2, 0, 2]))
    assert isinstance(picked, models.Memory)
    assert picked.states.tolist() == [[4, 5], [0, 1], [4, 5]]
    assert picked.src_pad_mask.int().tolist() == [[0, 0, 1], [1, 0, 0], [0, 0, 1]]
    assert picked.cache[0].tolist() == [2, 0, 2]
    assert picked.cache[1][0].tolist() == [4, 0, 4]
