"""mtkit recipe: what it prints, and what it says of a recipe that cannot be used."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mtkit.cli import app
from mtkit.models import available, parse_config
from mtkit.recipe import load_recipe

TOY = """\
name: toy
data:
  src: en
  trg: no
  train: [corpus/train, more]
  dev: dev
  test: {news: news}
model: {type: transformer, preset: small, dropout: 0.25}
train: {updates: 10}
"""

SOURCES = ("corpus/train", "more", "dev", "news")


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recipe in the current directory, and the files that it names."""
    monkeypatch.chdir(tmp_path)
    for source in SOURCES:
        (tmp_path / source).parent.mkdir(exist_ok=True)
        (tmp_path / f"{source}.en").write_text("one\n")
        (tmp_path / f"{source}.no").write_text("en\n")
    path = tmp_path / "toy.yaml"
    path.write_text(TOY)
    return path


def run(*arguments: str) -> tuple[int, bytes, str]:
    result = CliRunner().invoke(app, ["recipe", *arguments])
    return result.exit_code, result.stdout_bytes, result.stderr


def test_show_prints_the_resolved_recipe_as_a_recipe(recipe: Path, tmp_path: Path) -> None:
    status, output, errors = run("show", "toy.yaml", "--set", "train.updates=7", "--set", "search.beam_size=2")
    assert (status, errors) == (0, "")
    assert b"\r" not in output
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "shown.yaml").write_bytes(output)
    shown = load_recipe(tmp_path / "elsewhere" / "shown.yaml")
    expected = load_recipe(recipe, ["train.updates=7", "search.beam_size=2"], parse_model=parse_config)
    assert shown == expected
    assert (shown.train.updates, shown.search.beam_size, shown.data.trg) == (7, 2, "no")
    assert shown.model["dropout"] == 0.25


def test_show_refuses_what_cannot_be_read(recipe: Path) -> None:
    recipe.write_text(TOY.replace("dropout", "dropuot"))
    assert run("show", "toy.yaml") == (
        2,
        b"",
        "mtkit: toy.yaml:8: model.dropuot: unknown key; did you mean 'dropout'?\n",
    )


def test_check_says_ok(recipe: Path) -> None:
    assert run("check", "toy.yaml") == (0, b"toy: ok\n", "")


def test_check_names_every_missing_file_with_its_key(recipe: Path, tmp_path: Path) -> None:
    (tmp_path / "more.no").unlink()
    (tmp_path / "news.en").unlink()
    assert run("check", "toy.yaml") == (
        2,
        b"",
        f"mtkit: toy.yaml: data.train.1: {tmp_path / 'more.no'}: no such file\n"
        f"toy.yaml: data.test.news: {tmp_path / 'news.en'}: no such file\n",
    )


def test_check_names_the_key_of_a_bitext_that_the_grammar_cannot_make(recipe: Path, tmp_path: Path) -> None:
    recipe.write_text(TOY.replace("trg: no", "trg: de").replace("dev: dev", "dev: 'synthetic:dev,min_words=1'"))
    status, _, told = run("check", "toy.yaml")
    *_, dev, news = told.splitlines()
    assert status == 2 and dev.startswith("toy.yaml: data.dev: synthetic: min_words: ")
    assert news == f"toy.yaml: data.test.news: {tmp_path / 'news.de'}: no such file"


def test_check_looks_where_data_root_says(recipe: Path, tmp_path: Path) -> None:
    recipe.write_text(TOY.replace("[corpus/train, more]", "train"))
    status, _, errors = run("check", "toy.yaml", "--set", "data.root=corpus")
    assert status == 2
    assert f"data.dev: {tmp_path / 'corpus' / 'dev.en'}: no such file" in errors
    assert "data.train" not in errors


def test_check_reports_sizes_that_do_not_fit_before_the_data(recipe: Path, tmp_path: Path) -> None:
    (tmp_path / "dev.en").unlink()
    assert run("check", "toy.yaml", "--set", "model.d_model=30", "--set", "model.n_heads=7") == (
        2,
        b"",
        "mtkit: --set model.n_heads: 7 does not divide d_model 30\n",
    )


def test_schema_describes_the_model_section_of_every_backend() -> None:
    status, output, errors = run("schema")
    assert (status, errors) == (0, "")
    sections = json.loads(output)["properties"]["model"]["anyOf"]
    assert [section["properties"]["type"]["const"] for section in sections] == available()
    assert all("dropout" in section["properties"] for section in sections)


def test_explain_tells_origins_and_compares_with_the_paper(recipe: Path) -> None:
    recipe.write_text(TOY.replace("name: toy", "name: toy\npaper: vaswani2017-base"))
    status, output, errors = run("explain", "toy.yaml", "--set", "train.lr=1")
    assert (status, errors) == (0, "")
    lines = [" ".join(line.split()) for line in output.decode().splitlines()]
    assert "dropout 0.25 toy.yaml:9 ≠ 0.1 (table 3)" in lines
    assert "lr 1 --set = §5.3, eq. 3" in lines
    assert b"patience" not in output


def test_explain_all_has_every_key_of_the_recipe(recipe: Path) -> None:
    status, output, _ = run("explain", "toy.yaml", "--all", "--format", "json")
    assert status == 0
    keys = {entry["key"] for entry in json.loads(output)["settings"]}
    train = load_recipe(recipe).train
    assert {f"train.{name}" for name in type(train).model_fields} <= keys
    assert {"data.train", "data.filters.max_length", "model.preset", "model.d_model", "search.beam_size"} <= keys


def test_explain_refuses_an_unknown_paper(recipe: Path) -> None:
    recipe.write_text(TOY.replace("name: toy", "name: toy\npaper: nobody1999"))
    status, output, errors = run("explain", "toy.yaml")
    assert (status, output) == (2, b"")
    assert errors.startswith("mtkit: toy.yaml:2: paper: expected one of sutskever2014, ")


@pytest.mark.parametrize("verb", ["show", "check", "explain", "schema"])
def test_help_has_an_example(verb: str) -> None:
    status, output, _ = run(verb, "--help")
    assert status == 0
    assert f"Example: mtkit recipe {verb}".encode() in output
