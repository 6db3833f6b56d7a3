"""What is dropped, counted by cause."""

from __future__ import annotations

import random

from mtkit.data.filters import CAUSES, PairFilter, SeenPairs
from mtkit.recipe import FilterSection


def kept(pair_filter: PairFilter, *pairs: tuple[str, str]) -> list[tuple[str, str]]:
    """Pairs that pass, where a token is a word."""
    lengths = [[len(text.split(" ")) if text else 0 for text in side] for side in zip(*pairs, strict=True)]
    return [pairs[i] for i in pair_filter.keep(pairs, *lengths)]


def counted(**counts: int) -> dict[str, int]:
    return dict.fromkeys(CAUSES, 0) | {cause.replace("_", " "): n for cause, n in counts.items()}


def test_pair_with_an_empty_side_is_dropped_as_a_pair():
    pair_filter = PairFilter(FilterSection())
    pairs = [("a", "A"), ("", "B"), ("c", "C"), ("d", ""), (" ", "E"), ("f", "\t\u3000")]
    assert kept(pair_filter, *pairs) == [("a", "A"), ("c", "C")]
    assert pair_filter.dropped == counted(empty_side=4)


def test_text_without_a_token_is_an_empty_side():
    pair_filter = PairFilter(FilterSection())
    assert pair_filter.keep([("\u200b", "A")], [0], [1]) == []
    assert pair_filter.dropped == counted(empty_side=1)


def test_longest_side_decides_on_too_long():
    pair_filter = PairFilter(FilterSection(max_length=3))
    pairs = [("a a a", "A"), ("a a a a", "A"), ("a", "A A A A"), ("a", "A A A")]
    assert kept(pair_filter, *pairs) == [pairs[0], pairs[3]]
    assert pair_filter.dropped == counted(too_long=2)


def test_ratio_is_taken_both_ways_and_its_limit_is_allowed():
    pair_filter = PairFilter(FilterSection(max_ratio=2))
    pairs = [("a a", "A"), ("a", "A A"), ("a a a", "A"), ("a", "A A A")]
    assert kept(pair_filter, *pairs) == pairs[:2]
    assert pair_filter.dropped == counted(length_ratio=2)


def test_duplicates_are_pairs_not_sides_and_are_found_across_blocks():
    pair_filter = PairFilter(FilterSection(drop_duplicates=True))
    assert kept(pair_filter, ("a", "A"), ("a", "B"), ("a", "A"), ("b", "A")) == [("a", "A"), ("a", "B"), ("b", "A")]
    assert kept(pair_filter, ("b", "A"), ("c", "C")) == [("c", "C")]
    assert pair_filter.dropped == counted(duplicate=2)


def test_duplicates_stay_unless_the_recipe_drops_them():
    assert len(kept(PairFilter(FilterSection()), ("a", "A"), ("a", "A"))) == 2


def test_pair_that_was_dropped_is_counted_once_and_makes_no_duplicate():
    pair_filter = PairFilter(FilterSection(max_length=1, drop_duplicates=True))
    assert kept(pair_filter, ("a a", "A"), ("a a", "A")) == []
    assert pair_filter.dropped == counted(too_long=2)


def test_text_does_not_slip_from_one_side_to_the_other():
    assert SeenPairs().add([("a b", "c"), ("a", "b c"), ("a bc", "")]).all()


def test_seen_pairs_agree_with_a_set():
    draw = random.Random(5)
    seen, known = SeenPairs(), set()
    for size in (1, 0, 50, 3, 200, 200, 1):
        block = [(str(draw.randrange(150)), "") for _ in range(size)]
        expected = []
        for pair in block:
            expected.append(pair not in known)
            known.add(pair)
        assert seen.add(block).tolist() == expected


def test_a_side_in_another_script_drops_the_pair():
    pair_filter = PairFilter(FilterSection(src_script="latin", trg_script="cyrillic"))
    pairs = [
        ("an apple", "яблоко"),
        ("яблоко", "яблоко"),
        ("an apple", "an apple"),
        ("7", "7"),
        ("an apple", "OK, яблоко"),
    ]
    assert kept(pair_filter, *pairs) == [pairs[0], pairs[3], pairs[4]]
    assert pair_filter.dropped == counted(wrong_script=2)


def test_keys_that_came_later_make_another_text_only_where_they_are_set():
    """A store or a model of before is that of a recipe that does not have them."""
    assert FilterSection().content() == {"max_length": 256, "max_ratio": None, "drop_duplicates": False}
    assert FilterSection(trg_script="thai").content()["trg_script"] == "thai"
