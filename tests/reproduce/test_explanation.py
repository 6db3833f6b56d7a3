"""Where the settings of a recipe come from, and how they compare with a paper."""

from __future__ import annotations

from pathlib import Path

import pytest

from mtkit.errors import RecipeError
from mtkit.reproduce.explanation import Row, as_json, explain, render, shown_value

PARENT = """\
name: parent
data: {src: en, trg: de, train: "synthetic:train", dev: "synthetic:dev"}
model:
  type: transformer
  preset: base
  dropout: 0.2
train:
  updates: 100000
  optimizer: adam
"""
CHILD = """\
extends: parent.yaml
name: child
paper: vaswani2017-base
model:
  type: transformer
  d_ff: 1024
train:
  lr: 1
"""


@pytest.fixture
def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "parent.yaml").write_text(PARENT)
    (tmp_path / "child.yaml").write_text(CHILD)
    monkeypatch.chdir(tmp_path)
    return "child.yaml"


def rows(path: str, *overrides: str, every: bool = False) -> dict[str, Row]:
    return {row.key: row for row in explain(path, overrides, every=every).rows}


def test_each_value_has_the_place_where_it_was_written_last(child: str) -> None:
    found = rows(child, "train.lr=2", "model.n_heads=4")
    expected = {
        "name": ("child", "child.yaml:2"),
        "paper": ("vaswani2017-base", "child.yaml:3"),
        "data.src": ("en", "parent.yaml:2"),
        "model.type": ("transformer", "child.yaml:5"),
        "model.preset": ("base", "parent.yaml:5"),
        "model.dropout": (0.2, "parent.yaml:6"),
        "model.d_ff": (1024, "child.yaml:6"),
        "model.d_model": (512, "preset base"),
        "model.n_heads": (4, "--set"),
        "train.updates": (100_000, "parent.yaml:8"),
        "train.lr": (2.0, "--set"),
        "train.label_smoothing": (0.1, "default"),
    }
    assert {key: (found[key].value, found[key].origin) for key in expected} == expected


def test_a_section_of_another_backend_leaves_nothing_of_the_old_one(child: str) -> None:
    found = rows(child, "model={type: rnnsearch, preset: small, dropout: 0.5}")
    assert (found["model.preset"].value, found["model.preset"].origin) == ("small", "--set")
    assert "d_ff" not in {key.split(".")[1] for key, row in found.items() if "." in key and not row.missing}
    assert found["model.d_ff"].missing
    assert found["model.d_ff"].departs


def test_only_what_is_written_or_published_is_told_unless_all_is_wanted(child: str, tmp_path: Path) -> None:
    assert "train.patience" not in rows(child)
    every = rows(child, every=True)
    assert (every["train.patience"].value, every["train.patience"].origin) == (None, "default")
    (tmp_path / "plain.yaml").write_text(PARENT)
    assert set(rows("plain.yaml")) == {
        "name", "data.src", "data.trg", "data.train", "data.dev", "model.type", "model.preset", "model.dropout",
        "train.updates", "train.optimizer",
    }  # fmt: skip


def test_values_are_compared_with_the_papers(child: str) -> None:
    """Table 3 has d_ff 2048 and dropout 0.1, §5.2 100,000 updates, §5.3 the factor 1 and betas of 0.9 and 0.98."""
    found = rows(child)
    departing = {key for key in ("model.d_ff", "model.dropout") if found[key].departs}
    assert departing == {"model.d_ff", "model.dropout"}
    for key in ("model.d_model", "train.updates", "train.lr", "train.betas"):
        assert found[key].published is not None
        assert not found[key].departs
    assert found["data.train"].published is None
    assert not found["data.train"].departs


def test_an_override_is_its_own_reason(child: str) -> None:
    assert rows(child, "train.batch_tokens=100")["train.batch_tokens"].reason == "by --set"
    assert "accumulate" in rows(child)["train.batch_tokens"].reason
    assert rows(child)["model.d_ff"].reason == ""


def test_an_unknown_paper_is_refused_with_its_line_and_the_known_ones(child: str, tmp_path: Path) -> None:
    (tmp_path / "child.yaml").write_text(CHILD.replace("vaswani2017-base", "vaswani2018"))
    with pytest.raises(RecipeError) as raised:
        explain(child)
    message = str(raised.value)
    assert message.startswith("child.yaml:3: paper: expected one of sutskever2014, ")
    assert message.endswith("vaswani2017-big; got 'vaswani2018'")


def test_the_text_names_origin_and_paper_on_one_line(child: str) -> None:
    text = render(explain(child))
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert lines[0] == "child: child.yaml"
    assert "d_ff 1024 child.yaml:6 ≠ 2048 (table 3)" in lines
    assert "d_model 512 preset base = table 3" in lines
    assert "dropout 0.2 parent.yaml:6 ≠ 0.1 (table 3)" in lines
    assert "model.d_ff: 1024, not 2048 (table 3): no reason is on record" in lines
    assert max(map(len, text.splitlines())) <= 120


def test_a_recipe_without_a_paper_has_no_word_of_one(child: str) -> None:
    explanation = explain("parent.yaml")
    assert "paper" not in render(explanation)
    assert "paper" not in as_json(explanation)
    assert not [row for row in explanation.rows if row.departs]


def test_json_holds_what_the_text_says(child: str) -> None:
    facts = as_json(explain(child))
    assert facts["paper"]["url"] == "https://arxiv.org/abs/1706.03762"
    settings = {entry["key"]: entry for entry in facts["settings"]}
    assert settings["model.d_ff"] == {
        "key": "model.d_ff",
        "value": 1024,
        "from": "child.yaml:6",
        "paper": {"value": 2048, "where": "table 3"},
        "departs": True,
        "reason": None,
    }
    assert settings["train.betas"]["paper"]["value"] == [0.9, 0.98]
    assert settings["data.train"] == {"key": "data.train", "value": "synthetic:train", "from": "parent.yaml:2"}


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (True, "true"),
        (None, "null"),
        (0.5, "0.5"),
        (1.0, "1"),
        (37000, "37000"),
        ([512, 512, 768], "[512 x 2, 768]"),
        ({"src": "a", "trg": "b"}, "{src: a, trg: b}"),
        ([], "[]"),
    ],
)
def test_values_are_shown_as_a_recipe_would_write_them(value: object, shown: str) -> None:
    assert shown_value(value) == shown
