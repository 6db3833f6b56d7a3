"""How reports name the texts that models have learned from."""

from __future__ import annotations

from pathlib import Path

from mtkit.recipe import DataSection
from mtkit.reproduce.corpus import learned_from, text_name

DATA = DataSection(src="en", trg="de", root="/corpus", train="train", dev="synthetic:dev,pairs=9")


def test_a_file_is_named_with_its_folder_and_other_sources_as_the_recipe_has_them() -> None:
    pair = {"src": "a.txt", "trg": "b.txt"}
    named = DataSection(src="en", trg="de", root="/corpus", train=pair, dev="hub:owner/name:validation")
    assert [text_name(source, named) for source in (named.train, named.dev)] == [
        f"{Path('/corpus/a.txt')}, {Path('/corpus/b.txt')} (en-de)",
        "hub:owner/name:validation (en-de)",
    ]


def test_what_all_have_read_names_nobody_and_what_some_have_read_names_them() -> None:
    share = DATA.model_copy(update={"share": 0.1})
    more = DATA.model_copy(update={"train": ["train", "synthetic:more,pairs=5"]})
    learners = [("A", DATA), ("A, little", share), ("B, little", share), ("C", more)]
    file = Path("/corpus/train")
    assert learned_from(learners) == [
        f"train: {file} (en-de), for A; C",
        "dev: synthetic:dev,pairs=9 (en-de)",
        f"train: {file} (en-de), 10% of it, for A, little; B, little",
        "train: synthetic:more,pairs=5 (en-de), for C",
    ]


def test_a_size_stands_with_the_text_and_before_the_share() -> None:
    share = DATA.model_copy(update={"share": 0.5})
    sized = learned_from([("A", share)], lambda source, data: f"{source} of {data.src}, 8 pairs")
    assert sized == ["train: train of en, 8 pairs, 50% of it", "dev: synthetic:dev,pairs=9 of en, 8 pairs"]
