"""Which trainings are one and the same model, where they lie, and what a plan says of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mtkit.reproduce.conduct import plan_text
from mtkit.reproduce.laboratory import Laboratory, Place, Search, Translated, facts_of, recipes_folder, what_makes
from mtkit.reproduce.study import Settings, Training

RNN = Training("RNNsearch", "toy/rnnsearch.yaml")


def laboratory(folder: Path, *overrides: str, seeds: int = 1) -> Laboratory:
    return Laboratory(Settings("toy"), folder, recipes_folder(), seeds=seeds, overrides=overrides)


def folder_of(tmp_path: Path, training: Training, *overrides: str) -> Path:
    return laboratory(tmp_path, *overrides).place(training, 1).run


@pytest.mark.parametrize(
    "override",
    ["data.test.more=synthetic:test", "train.max_minutes=1", "search.beam_size=9", "name=other", "train.keep=9"],
)
def test_what_does_not_make_another_model_keeps_its_folder(tmp_path: Path, override: str) -> None:
    renamed = override.startswith("name")
    one, other = folder_of(tmp_path, RNN), folder_of(tmp_path, RNN, override)
    assert one.parent.name[-10:] == other.parent.name[-10:]
    assert (one == other) is not renamed


@pytest.mark.parametrize(
    "override",
    ["train.updates=7", "model.d_hidden=64", "data.train=synthetic:train,pairs=7", "text.vocab_size=99", "train.lr=1"],
)
def test_what_makes_another_model_gets_another_folder(tmp_path: Path, override: str) -> None:
    assert folder_of(tmp_path, RNN) != folder_of(tmp_path, RNN, override)


def test_a_variant_that_a_recipe_does_not_have_makes_no_other_model(tmp_path: Path) -> None:
    """A key that a later version adds is null in every recipe of before."""
    transformer = Training("Transformer", "toy/transformer.yaml")
    recipe = laboratory(tmp_path).place(transformer, 1).recipe
    assert recipe.model["d_key"] is None
    before = recipe.model_copy(update={"model": {key: v for key, v in recipe.model.items() if key != "d_key"}})
    assert what_makes(before, str) == what_makes(recipe, str)
    assert folder_of(tmp_path, transformer, "model.d_key=8") != folder_of(tmp_path, transformer)


def test_the_text_makes_the_model_and_not_the_place_where_it_lies(tmp_path: Path) -> None:
    def corpus(name: str, word: str) -> str:
        folder = tmp_path / name
        folder.mkdir()
        for file in ("train", "val"):
            for side in ("en", "de"):
                (folder / f"{file}.{side}").write_text(f"{word}\n", encoding="utf-8")
        return f"data.root={folder}"

    one, alike, other = corpus("one", "a"), corpus("alike", "a"), corpus("other", "b")
    training = Training("RNNsearch", "multi30k/rnnsearch.yaml")
    assert folder_of(tmp_path, training, one) == folder_of(tmp_path, training, alike)
    assert folder_of(tmp_path, training, one) != folder_of(tmp_path, training, other)
    before = folder_of(tmp_path, training, one)
    (tmp_path / "one" / "val.de").write_text("c\n", encoding="utf-8")
    assert folder_of(tmp_path, training, one) != before, "other sentences under the same name"


def test_what_was_damaged_is_made_again(tmp_path: Path) -> None:
    (place,) = laboratory(tmp_path).places([RNN])
    place.record.parent.mkdir(parents=True)
    for damaged in ('{"cut_af', "[1]", ""):
        place.record.write_text(damaged, encoding="utf-8")
        assert not place.is_finished


def test_a_note_says_who_reads_backwards(tmp_path: Path) -> None:
    systems = [Training(name, f"toy/{name}.yaml") for name in ("rnnsearch", "seq2seq", "luong_global", "luong_local_p")]
    assert (
        laboratory(tmp_path).reading_note(systems).startswith("The source is read backwards by seq2seq, luong_local_p.")
    )
    assert laboratory(tmp_path).reading_note(systems[:1]).startswith("No system reads backwards.")


def test_minutes_make_the_model_where_nothing_else_ends_its_training(tmp_path: Path) -> None:
    endless = ("train.updates=null", "train.schedule=constant")
    short, long = (folder_of(tmp_path, RNN, *endless, f"train.max_minutes={minutes}") for minutes in (1, 2))
    assert short != long


def test_two_studies_share_a_model_whatever_they_call_it(tmp_path: Path) -> None:
    assert folder_of(tmp_path, RNN) == folder_of(tmp_path, RNN._replace(label="attention"))


def test_seeds_and_members_are_trained_with_seeds_of_their_own(tmp_path: Path) -> None:
    places = laboratory(tmp_path, seeds=2).places([RNN, RNN._replace(label="second", member=1)])
    assert [place.recipe.train.seed for place in places] == [1, 1001, 2, 1002]
    assert len({place.run for place in places}) == 4


def test_a_budget_shortens_a_training_and_never_lengthens_it(tmp_path: Path) -> None:
    place = laboratory(tmp_path).place(RNN, 1, max_minutes=0.5)
    assert place.recipe.train.max_minutes == 0.5


def test_the_plan_names_every_training_its_state_and_its_time(tmp_path: Path) -> None:
    room = laboratory(tmp_path, "train.max_minutes=3")
    places = room.places([RNN, Training("RNNencdec", "toy/rnnencdec.yaml")])
    places[0].run.mkdir(parents=True)
    (places[0].run / "metrics.jsonl").write_text(json.dumps({"update": 1, "minutes": 2.0}) + "\n", encoding="utf-8")
    places[0].record.write_text('{"end": "3,000 updates"}', encoding="utf-8")
    lines = plan_text("Title", places, None).splitlines()
    assert lines[0] == "Title"
    assert lines[1].split() == ["RNNsearch,", "seed", "1", "toy-rnnsearch", "finished"]
    assert lines[2].split() == ["RNNencdec,", "seed", "1", "toy-rnnencdec", "missing,", "about", "3", "min"]
    assert lines[3] == "about 3 min of training, then translating and scoring"
    assert "about 1 min of training" in plan_text("Title", places, 1.0)


def test_what_is_missing_is_expected_to_go_at_the_pace_of_what_is_finished(tmp_path: Path) -> None:
    """1,000 updates in 2 minutes: 3,000 take 6, less the 1.5 that a begun training has had."""
    room = laboratory(tmp_path, "train.max_minutes=9")
    done, begun = room.places(
        [Training("RNNsearch", "toy/rnnsearch.yaml"), Training("RNNencdec", "toy/rnnencdec.yaml")]
    )
    for place, entry in ((done, {"update": 1000, "minutes": 2.0}), (begun, {"update": 500, "minutes": 1.5})):
        place.run.mkdir(parents=True)
        (place.run / "metrics.jsonl").write_text(json.dumps(entry) + "\n", encoding="utf-8")
    assert begun.recipe.train.updates == 3000
    assert plan_text("Title", [done, begun], None).splitlines()[2].endswith("begun, at most 8 min")
    done.record.write_text('{"end": "3,000 updates"}', encoding="utf-8")
    assert plan_text("Title", [done, begun], None).splitlines()[2].endswith("begun, about 4 min")
    assert plan_text("Title", [done, begun], 4.0).splitlines()[2].endswith("begun, about 2 min")


def finish(place: Place, *, updates: int, minutes: float) -> None:
    place.run.mkdir(parents=True)
    entry = json.dumps({"update": updates, "minutes": minutes})
    (place.run / "metrics.jsonl").write_text(entry + "\n", encoding="utf-8")
    place.record.write_text('{"end": "its end"}', encoding="utf-8")


def test_the_pace_is_one_of_tokens_and_not_of_updates(tmp_path: Path) -> None:
    """1,000 updates of 4,096 tokens in 8 minutes: 3,000 of 1,024 take 6."""
    room = laboratory(tmp_path, "train.max_minutes=60")
    large = Training("large", "toy/transformer.yaml", ("train.batch_tokens=2048", "train.accumulate=2"))
    small = Training("small", "toy/rnnencdec.yaml", ("train.batch_tokens=1024", "train.updates=3000"))
    places = room.places([large, small])
    finish(places[0], updates=1000, minutes=8.0)
    assert plan_text("Title", places, None).splitlines()[2].endswith("missing, about 6 min")


def test_where_passes_are_counted_the_pace_is_one_of_the_whole_text(tmp_path: Path) -> None:
    """Four passes in 8 minutes: five times as many over a tenth of the text take 4."""
    room = laboratory(tmp_path, "train.updates=null", "train.epochs=4", "train.max_minutes=60")
    little = RNN._replace(label="little", overrides=("data.share=0.1",), passes=5)
    places = room.places([RNN, little])
    assert [place.recipe.train.epochs for place in places] == [4, 20]
    finish(places[0], updates=77, minutes=8.0)
    assert plan_text("Title", places, None).splitlines()[2].endswith("missing, about 4 min")


def test_a_seed_is_expected_to_take_as_long_as_another_one_took(tmp_path: Path) -> None:
    places = laboratory(tmp_path, "train.max_minutes=9", seeds=2).places([RNN])
    places[0].run.mkdir(parents=True)
    (places[0].run / "metrics.jsonl").write_text(json.dumps({"update": 1, "minutes": 2.0}) + "\n", encoding="utf-8")
    places[0].record.write_text('{"end": "3,000 updates"}', encoding="utf-8")
    assert plan_text("Title", places, None).splitlines()[2].endswith("missing, about 2 min")


def test_no_training_needs_no_plan() -> None:
    assert plan_text("Title", [], None) == "Title\nno training needed"


def test_facts_come_from_the_log_and_the_model(make_run, tmp_path: Path) -> None:
    run = make_run(tmp_path, "rnnsearch")
    entries = [
        {"update": 10, "epoch": 0.375, "trg_tokens_per_second": 100.0, "minutes": 0.5},
        {"update": 10, "checkpoint": "update-10", "dev_ppl": 9.0, "dev_bleu": 1.0, "minutes": 0.6},
        {"update": 20, "epoch": 0.75, "trg_tokens_per_second": 300.0, "minutes": 1.0},
        {"update": 20, "checkpoint": "update-20", "dev_ppl": 8.0, "dev_bleu": 3.0, "minutes": 1.5},
        {"update": 30, "checkpoint": "update-30", "dev_ppl": 8.5, "dev_bleu": 2.0, "minutes": 2.0},
    ]
    (run / "metrics.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries), encoding="utf-8")
    found = facts_of(run)
    assert found[1:] == (30, 0.75, 2.0, 200.0, 8.0, 3.0)
    assert found.parameters > 0


@pytest.mark.parametrize(
    ("looks", "said"),
    [
        ([], ""),
        ([(750, 6.8)], ""),
        ([(500, 1.0), (750, 20.0), (1000, 24.9)], ""),
        ([(500, 19.0), (750, 20.0), (1000, 25.0)], "RNNsearch, seed 1 from 20.0 at update 750 to 25.0 at 1,000"),
        ([(250, 0.0), (500, 0.0)], ""),
    ],
)
def test_what_rose_by_a_quarter_at_its_last_look_still_learns(
    tmp_path: Path, looks: list[tuple[int, float]], said: str
) -> None:
    made = laboratory(tmp_path)
    run = made.place(RNN, 1).run
    run.mkdir(parents=True)
    entries = [{"update": update, "checkpoint": f"update-{update}", "dev_bleu": bleu} for update, bleu in looks]
    (run / "metrics.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries), encoding="utf-8")
    assert made.still_learning(RNN) == said


def test_a_member_of_an_ensemble_is_named_by_its_own_seed(tmp_path: Path) -> None:
    second = Training("RNNsearch 2", "toy/rnnsearch.yaml", member=1)
    place = laboratory(tmp_path, seeds=2).place(second, 2)
    assert place.name == "RNNsearch 2, seed 1002" and place.run.name == "seed-1002"


def test_what_a_clock_cut_short_goes_on_when_there_is_more_time(tmp_path: Path) -> None:
    place = laboratory(tmp_path, "train.max_minutes=4").places([RNN])[0]
    place.record.parent.mkdir(parents=True)

    def record(**keys: object) -> None:
        place.record.write_text(json.dumps(keys), encoding="utf-8")

    assert not place.is_finished
    record(end="3,000 updates", cut_after=None)
    assert place.is_finished and place.is_finished_within(99) and place.is_finished_within(None)
    record(end="1 minutes", cut_after=1.0)
    assert not place.is_finished, "its recipe would give it four"
    assert place.is_finished_within(1.0) and place.is_finished_within(0.5)
    assert not place.is_finished_within(2.0) and not place.is_finished_within(None)
    record(end="4 minutes", cut_after=4.0)
    assert place.is_finished


def test_a_model_that_went_on_is_translated_anew(make_run, tmp_path: Path) -> None:
    """What is kept of a translation is kept for these weights."""
    room = laboratory(tmp_path, "data.test={short: 'synthetic:test,pairs=3,max_words=9', long: null}")
    place = room.place(RNN, 1)
    made = make_run(tmp_path, "rnnsearch")
    place.run.parent.mkdir(parents=True)
    made.rename(place.run)
    room.translate([(RNN, 1)], "short", Search(beam_size=1))
    room.translate([(RNN, 1)], "short", Search(beam_size=1))
    assert len(list((tmp_path / "translations").iterdir())) == 1
    (place.run / "best").write_text("update-10\n", encoding="utf-8")
    room.translate([(RNN, 1)], "short", Search(beam_size=1))
    assert len(list((tmp_path / "translations").iterdir())) == 2


def test_what_is_done_to_a_model_beside_its_search_is_translated_once_too(make_run, tmp_path: Path) -> None:
    room = laboratory(tmp_path)
    place = room.place(RNN, 1)
    place.run.parent.mkdir(parents=True)
    make_run(tmp_path, "rnnsearch").rename(place.run)
    made = []

    def once(text: str, *changed: str) -> list[str]:
        def make() -> Translated:
            made.append(text)
            return Translated(["a"], ["b"], [text], [-1.0], 0.5, 3)

        return room.once(make, [(RNN, 1)], "short", Search(beam_size=1), changed=changed).hypotheses

    assert [once("whole"), once("again"), once("less", "without a 0"), once("more", "without a 0")] == [
        *(["whole"], ["whole"]),
        *(["less"], ["less"]),
    ]
    assert made == ["whole", "less"]
    assert room.translate([(RNN, 1)], "short", Search(beam_size=1)).hypotheses == ["whole"], "the same search"
