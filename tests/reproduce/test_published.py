"""What is on record of the published systems, and the recipes that repeat them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mtkit.models import parse_config
from mtkit.recipe import Recipe, load_recipe, written_places
from mtkit.reproduce.explanation import explain
from mtkit.reproduce.published import PUBLICATIONS
from mtkit.train.experiment import check_recipe

RECIPES = Path(__file__).resolve().parents[2] / "recipes"
# What others extend has no name and trains nothing.
NAMED = sorted(path for path in RECIPES.glob("*/*.yaml") if re.search("^name:", path.read_text("utf-8"), re.M))
PUBLISHED = sorted((RECIPES / "wmt14").glob("*.yaml"))


def names(paths: list[Path]) -> list[str]:
    return [str(path.relative_to(RECIPES)) for path in paths]


def load(path: Path) -> Recipe:
    return load_recipe(path, parse_model=parse_config)


@pytest.mark.parametrize("path", NAMED, ids=names(NAMED))
def test_every_recipe_can_be_trained(path: Path) -> None:
    """As far as can be seen without its data."""
    recipe = load(path)
    check_recipe(recipe)
    folder = path.parent.name
    assert recipe.name.startswith(folder)
    assert recipe.train.validate_every % recipe.train.save_every == 0


def test_no_two_recipes_share_a_run_folder() -> None:
    assert len({load(path).name for path in NAMED}) == len(NAMED)


@pytest.mark.parametrize("path", PUBLISHED, ids=names(PUBLISHED))
def test_a_published_recipe_has_the_papers_values_or_says_why_not(path: Path) -> None:
    recipe = load(path)
    rows = explain(path).rows
    compared = [row for row in rows if row.published]
    assert recipe.paper is not None
    assert {row.key for row in compared} == {setting.key for setting in PUBLICATIONS[recipe.paper].settings}
    assert not [row.key for row in compared if row.departs and not row.reason]
    # A reason without a departure would be left over from another value.
    assert not [row.key for row in compared if not row.departs and row.published and row.published.deviation]


def test_every_published_system_has_a_recipe() -> None:
    assert {load(path).paper for path in PUBLISHED} == set(PUBLICATIONS)


@pytest.mark.parametrize("path", PUBLISHED, ids=names(PUBLISHED))
def test_every_line_of_a_published_recipe_names_its_source(path: Path) -> None:
    """A section or table of the paper, or that it is ours, in the comment on the line."""
    lines = {}
    for key, place in written_places(path).items():
        lines[key] = Path(place.file).read_text("utf-8").splitlines()[place.line - 1]
    source = re.compile(r"# .*(§|table \d|ours|the paper names n|Adadelta has none)")
    exempt = {("name",), ("paper",), ("data", "src"), ("data", "trg"), ("model", "type"), ("train", "schedule")}
    exempt |= {("train", "accumulate")}
    assert not [line for key, line in lines.items() if key not in exempt and not source.search(line)]


def test_the_transformers_updates_hold_25000_tokens_a_side() -> None:
    """Vaswani et al. (2017), §5.1: the departure in batch_tokens is none in what an update holds."""
    for name in ("base", "big"):
        train = load(RECIPES / f"wmt14/transformer_{name}.yaml").train
        assert train.batch_tokens * train.accumulate == 25_000


def test_batch_sentences_decides_where_a_paper_counts_sentences() -> None:
    """batch_tokens would cut a batch of the longest sentences with their EOS otherwise."""
    for path in PUBLISHED:
        recipe = load(path)
        if recipe.train.batch_sentences is not None:
            longest = recipe.data.filters.max_length + 1
            assert recipe.train.batch_tokens >= recipe.train.batch_sentences * longest


def test_the_papers_table_3_is_on_record() -> None:
    """CH-112: Vaswani et al. (2017), table 3; P_drop of big is 0.3 for English-German."""
    columns = ("n_layers", "d_model", "d_ff", "n_heads", "dropout")
    table = {"base": (6, 512, 2048, 8, 0.1), "big": (6, 1024, 4096, 16, 0.3)}
    for name, row in table.items():
        values = {setting.key: setting.value for setting in PUBLICATIONS[f"vaswani2017-{name}"].settings}
        assert tuple(values[f"model.{column}"] for column in columns) == row


def test_no_setting_is_on_record_twice() -> None:
    for publication in PUBLICATIONS.values():
        keys = [setting.key for setting in publication.settings]
        assert len(set(keys)) == len(keys)
        assert all(setting.where for setting in publication.settings)
