"""mtkit models: what can be trained, counted without memory."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from mtkit.cli import app
from mtkit.models import available, load


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["models", *arguments])
    return result.exit_code, result.stdout, result.stderr


def facts(name: str, vocab_size: int) -> dict[str, Any]:
    """Of each preset of a backend."""
    status, output, errors = run(name, "--vocab-size", str(vocab_size), "--format", "json")
    assert (status, errors) == (0, "")
    return {entry["preset"]: entry for entry in json.loads(output)["presets"]}


def test_parameters_of_the_transformer_are_those_of_the_closed_form() -> None:
    """CH-113: 44.14 M + 512 V for base, 176.36 M + 1024 V for big, one embedding for all three places.

    An attention of width d has 4 d^2 + 4 d, a feed-forward block 2 d d_ff + d_ff + d, a normalisation 2 d; six layers
    have one attention (encoder) or two (decoder), one block, and a normalisation for each of these.
    """

    def expected(d: int, d_ff: int, vocab_size: int) -> int:
        attention, block, norm = 4 * d * d + 4 * d, 2 * d * d_ff + d_ff + d, 2 * d
        return 6 * (3 * attention + 2 * block + 5 * norm) + d * vocab_size

    found = facts("transformer", 37_000)
    assert found["base"]["parameters"] == expected(512, 2048, 37_000) == 63_082_496
    assert found["big"]["parameters"] == expected(1024, 4096, 37_000) == 214_245_376


def test_a_transformer_keeps_keys_and_values_of_every_target_token_and_layer() -> None:
    found = facts("transformer", 100)
    for preset, n_layers, d_model in (("base", 6, 512), ("big", 6, 1024)):
        assert found[preset]["state_numbers_per_token"] == 2 * n_layers * d_model
        assert found[preset]["state_numbers"] == 0


@pytest.mark.parametrize(
    ("backend", "numbers"),
    [
        ("seq2seq", 2 * 4 * 1000),  # hidden and cell of four layers: the paper's "8000 real numbers"
        ("luong", 2 * 4 * 1000 + 1000 + 1),  # and the attentional vector, and the position
        ("rnnsearch", 1000),
        ("rnnencdec", 1000),
    ],
)
def test_a_recurrent_decoder_keeps_as_much_for_every_length(backend: str, numbers: int) -> None:
    found = facts(backend, 100)["paper"]
    assert (found["state_numbers"], found["state_numbers_per_token"]) == (numbers, 0)


def test_attention_is_that_of_the_preset() -> None:
    found = facts("convs2s", 100)
    assert {name: entry["attention"] for name, entry in found.items()} == {
        name: config.attention != "none" for name, config in load("convs2s").PRESETS.items()
    }
    assert {found["paper"]["attention"], found["bytenet"]["attention"]} == {True, False}


def test_the_table_has_a_line_for_every_preset() -> None:
    status, output, errors = run("--vocab-size", "100")
    assert (status, errors) == (0, "")
    listed = [tuple(line.split()[:2]) for line in output.splitlines()[1:]]
    assert listed == [(name, preset) for name in available() for preset in load(name).PRESETS]


def test_one_model_is_shown_with_the_keys_of_its_section() -> None:
    status, output, _ = run("rnnsearch", "--vocab-size", "100")
    assert status == 0
    lines = [" ".join(line.split()) for line in output.splitlines()]
    assert "d_hidden 512 integer >= 1 units of the decoder (n)" in lines
    assert "dropout 0.2 number >= 0, < 1 on the embeddings and on the maxout layer" in lines
    assert any(line.startswith("init xavier paper | xavier initial weights") for line in lines)
    assert len([line for line in lines if line.startswith("d_")]) == 5


def test_settings_are_in_the_json_too() -> None:
    settings = json.loads(run("luong", "--format", "json", "--vocab-size", "100")[1])["settings"]
    assert list(settings) == ["luong"]
    assert {entry["key"] for entry in settings["luong"]} == set(load("luong").Config.model_fields)
    attention = next(entry for entry in settings["luong"] if entry["key"] == "attention")
    assert attention["values"] == "none | global | local_m | local_p"


def test_an_unknown_model_is_refused() -> None:
    status, output, errors = run("transfomer")
    assert (status, output) == (2, "")
    assert errors == (
        f"mtkit: model.type: expected one of {', '.join(available())}; got 'transfomer'; did you mean 'transformer'?\n"
    )


def test_help_has_an_example() -> None:
    status, output, _ = run("--help")
    assert status == 0
    assert "Example: mtkit models" in output
