"""Every study: its recipes exist at every scale, and its report follows from models and translations alone.

The laboratory is a stand-in: its translations are references with some words replaced, its models have learned nothing.
What real trainings make of a study is tested in tests/cli/test_reproduce.py.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from mtkit import models
from mtkit.checkpoint import LoadedModel
from mtkit.reproduce import study
from mtkit.reproduce.findings import Findings
from mtkit.reproduce.laboratory import Facts, Laboratory, Search, Translated
from mtkit.reproduce.matching import count_parameters, matched_widths
from mtkit.reproduce.study import Settings, Training
from mtkit.reproduce.verdict import EXACT_RULE
from mtkit.text.grammar import generate
from mtkit.text.tokenizer import PAD_ID, Tokenizers, learn

ROOT = Path(__file__).resolve().parents[2]
MADE = list(generate(split="test", pairs=240, min_words=3, max_words=39))
PAIRS = [(pair.src, pair.trg) for pair in MADE]
JOINT = learn([text for pair in PAIRS for text in pair], kind="word", vocab_size=400)
N_SEEDS = 2


class StandIn(Laboratory):
    """Answers as trained models would."""

    def facts(self, training: Training, seed: int) -> Facts:
        return Facts(1000, 10, 2.5, 5000.0, 4.0 + seed, 20.0)

    def model(self, training: Training, seed: int) -> LoadedModel:
        recipe = self.place(training, seed).recipe
        section = {"type": recipe.model["type"], "preset": "tiny"}
        if section["type"] == "transformer":
            section |= {"n_heads": 8, "d_model": 16}
        torch.manual_seed(seed)
        model = models.build(section, JOINT.vocab_size, JOINT.vocab_size, PAD_ID).eval()
        recipe = recipe.model_copy(update={"model": section})
        search = recipe.search.model_copy(update={"max_length_ratio": 0.0, "max_length_extra": 3})
        recipe = recipe.model_copy(update={"search": search})
        return LoadedModel(model, Tokenizers(JOINT, JOINT, True), recipe, Path("run"), "update-10", 10)

    def dev(self, training: Training) -> list[tuple[str, str]]:
        return PAIRS[:20]

    def train_sources(self, training: Training, most: int = 100_000) -> list[str]:
        return [src for src, _ in PAIRS]

    def alignments(self, training: Training, set_name: str) -> list[list[tuple[int, int]]] | None:
        return [list(pair.alignment) for pair in MADE]

    def translate(
        self, members: Sequence[tuple[Training, int]], set_name: str, search: Search | None = None
    ) -> Translated:
        seed = f"{members} {search}"
        share = random.Random(seed).uniform(0.1, 0.6)
        drawn = random.Random(seed)
        words = [word for _, trg in PAIRS for word in trg.split()]
        hypotheses = [
            " ".join(drawn.choice(words) if drawn.random() < share else word for word in trg.split())
            for _, trg in PAIRS
        ]
        scores = [drawn.uniform(-2, -1) for _ in PAIRS]
        sources, references = [src for src, _ in PAIRS], [trg for _, trg in PAIRS]
        return Translated(sources, references, hypotheses, scores, 1.5, 1000)


def stand_in(tmp_path: Path, scale: str, match: str = "params") -> StandIn:
    return StandIn(Settings(scale, match), tmp_path, ROOT / "recipes", seeds=N_SEEDS)


@pytest.mark.parametrize("scale", ["toy", "multi30k", "paper"])
@pytest.mark.parametrize("name", study.available())
def test_every_training_has_a_recipe_and_a_model_of_its_own(name: str, scale: str, tmp_path: Path) -> None:
    laboratory = stand_in(tmp_path, scale)
    trainings = study.load(name).trainings(laboratory.settings)
    places = laboratory.places(trainings)
    assert len(places) == N_SEEDS * len(trainings)
    assert len({place.run for place in places}) == len(places), "two contestants are one and the same model"
    assert len({training.label for training in trainings}) == len(trainings)


@pytest.mark.parametrize("name", [name for name in study.available() if study.load(name).trainings(Settings("toy"))])
def test_a_report_judges_and_shows(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "league":
        monkeypatch.setattr(study.load(name), "_DISTANCES", (2, 5))
    check(study.load(name).report(stand_in(tmp_path, "toy")))


def check(found: Findings) -> None:
    assert isinstance(found, Findings)
    assert found.verdicts and found.tables
    for verdict in found.verdicts:
        assert verdict.outcome in ("shown", "not shown", "contradicted", "cannot be tested at this scale")
        assert verdict.claim and verdict.statement and verdict.reason and verdict.rule
    for table in found.tables:
        assert table.rows
        assert {len(row) for row in table.rows} == {len(table.header)}
    names = [each.name for each in [*found.tables, *found.pictures]]
    assert len({(type(each), each.name) for each in [*found.tables, *found.pictures]}) == len(names)


@pytest.mark.parametrize(
    ("name", "smaller"),
    [
        ("gradients", {"_STEPS": 100, "_DELAYS": (2, 50), "_SCALES": (0.9, 1.1), "_CEC_STEPS": 20}),
        ("softmax-scale", {}),
        ("table-1-5", {"LENGTHS": (64, 128, 256, 512, 1024), "_LONGEST_WHOLE": 512, "_SLOPE_LENGTHS": (256, 512)}),
        ("table-1-6", {}),
        ("table-1-7", {"_LENGTHS": (8, 16, 32, 64), "_WIDTHS": (8, 16, 32, 64), "_D": 16, "_N": 16, "_SECONDS": 0.01}),
    ],
)
def test_a_report_without_trainings_judges_and_shows(
    name: str, smaller: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At sizes for a test; what is arithmetic is shown at any size."""
    module = study.load(name)
    for constant, value in smaller.items():
        assert hasattr(module, constant)
        monkeypatch.setattr(module, constant, value)
    found = module.report(stand_in(tmp_path, "toy"))
    check(found)
    arithmetic = [verdict for verdict in found.verdicts if verdict.rule == EXACT_RULE]
    wrong = {verdict.claim for verdict in arithmetic if verdict.outcome != "shown"}
    assert wrong <= {"CH-124"}, "the chapter's 'close at n = 50' is wrong by its own formulas"


def test_caps_that_take_no_text_away_show_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CH-30, CH-31: on image captions no sentence is as long as the caps."""
    table = study.load("table-1-1")
    tested = table.report(stand_in(tmp_path, "toy")).verdicts
    assert all(verdict.outcome != "cannot be tested at this scale" for verdict in tested)
    monkeypatch.setattr(StandIn, "train_sources", lambda *_: ["a short one"] * 99 + [" ".join("a" * 40)])
    idle = table.report(stand_in(tmp_path, "toy")).verdicts
    assert [verdict.outcome for verdict in idle[:2]] == ["cannot be tested at this scale"] * 2
    assert idle[0].reason.startswith("a cap of 15 words leaves out 1.0% of the training sentences; 5% or more are")


def test_the_league_matches_parameters_to_five_percent(tmp_path: Path) -> None:
    laboratory = stand_in(tmp_path, "toy")
    counts = {}
    for training in study.load("league").trainings(laboratory.settings):
        recipe = laboratory.place(training, 1).recipe
        counts[training.label] = count_parameters(recipe.model, recipe)
    quarter = counts.pop("Transformer, a quarter")
    assert len(counts) == 11
    assert all(abs(count / 2_400_000 - 1) < 0.05 for count in counts.values()), counts
    assert abs(quarter / 600_000 - 1) < 0.15, "a step of 16 in width is much for a small one"


def test_the_league_matches_time_where_that_is_asked(tmp_path: Path) -> None:
    laboratory = stand_in(tmp_path, "toy", "time")
    recipes = [place.recipe for place in laboratory.places(study.load("league").trainings(laboratory.settings))]
    assert {recipe.train.max_minutes for recipe in recipes} == {3.0}
    assert {recipe.train.updates for recipe in recipes} == {None}


def test_widths_grow_together(tmp_path: Path) -> None:
    laboratory = stand_in(tmp_path, "toy")
    recipe = laboratory.place(Training("x", "toy/transformer.yaml"), 1).recipe
    small, large = matched_widths(recipe, 800_000), matched_widths(recipe, 6_000_000)
    assert small["d_ff"] / small["d_model"] == pytest.approx(4, rel=0.1)
    assert large["d_model"] > small["d_model"] and large["d_model"] % 16 == 0
