"""What is looked at before the first update, and that looking changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from mtkit.checkpoint import load_model
from mtkit.errors import TrainingError
from mtkit.recipe import Recipe
from mtkit.text.tokenizer import UNK_ID
from mtkit.train import experiment, preflight
from mtkit.train.corpus import build_train_store, count_overlap, learn_tokenizers, open_corpora
from mtkit.train.experiment import train
from mtkit.train.log import LOG_FILE
from mtkit.train.trainer import Position, Trainer

MakeRecipe = Callable[..., Recipe]


def table_in_the_log(run: Path) -> dict[str, str]:
    """First column -> second column."""
    rows = [line.strip("│ \n").split("│") for line in (run / LOG_FILE).read_text(encoding="utf-8").split("\n")]
    return {row[0].strip(): row[1].strip() for row in rows if len(row) == 2}


def write(folder: Path, name: str, src: list[str], trg: list[str]) -> None:
    for side, lines in (("a", src), ("b", trg)):
        (folder / f"{name}.{side}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def test_the_table_tells_what_was_read(make_recipe: MakeRecipe, tmp_path: Path) -> None:
    """Seven pairs: one with an empty side, one longer than five tokens, and the dev pair among them, in other case."""
    write(
        tmp_path,
        "train",
        ["x y", "x", "", "y y y y y y", "y x", "X  Y x", "y"],
        ["x y", "x", "x", "x", "x", "y x", "y"],
    )
    write(tmp_path, "dev", ["x y X", "y y"], ["y x", "x x"])
    recipe = make_recipe(
        data={"root": str(tmp_path), "filters": {"max_length": 5}, "test": {"one": "dev"}}, train={"updates": 1}
    )
    train(recipe, tmp_path / "run", device="cpu")
    table = table_in_the_log(tmp_path / "run")
    assert table["pairs read"] == "7"
    assert sum(int(figure) for what, figure in table.items() if what.startswith("dropped: ")) == 2
    assert table["pairs to train on"] == "5"
    # source tokens with EOS: 3, 2, 3, 4, 2
    assert table["length in tokens, a"].startswith("mean 2.8 ")
    assert table["pairs of dev also in training"] == "1 of 2"
    assert table["pairs of one also in training"] == "1 of 2"
    assert table["arithmetic"].startswith("fp32 on cpu")
    assert table["gradient divided by"] == "the tokens of an update"
    assert table["time to the end, estimated"].endswith(" s an update")
    assert ", without validation; " in table["time to the end, estimated"]


def test_the_table_tells_what_a_run_takes(make_recipe: MakeRecipe, tmp_path: Path) -> None:
    """Four pairs in one batch. The vocabulary has room for four words, p, q, r and s, which come most often."""
    src, trg = ["p p q", "p q r", "s", "p t"], ["p q r s", "p q", "r s", "u p"]
    write(tmp_path, "train", src, trg)
    (tmp_path / "train.a").write_bytes("".join(f"{line}\n" for line in src).encode().replace(b"t", b"t\xff"))
    write(tmp_path, "dev", ["p"], ["p"])
    recipe = make_recipe(data={"root": str(tmp_path)}, text={"vocab_size": 8}, train={"updates": 1})
    train(recipe, tmp_path / "run", device="cpu")
    table = table_in_the_log(tmp_path / "run")
    assert table["lines with invalid UTF-8"].startswith("1 ")
    assert table["unknown tokens"] == "11.11 % / 10.00 %", "one of nine, one of ten"
    # with EOS: 4, 4, 2, 3 and 5, 3, 3, 3
    assert table["length in tokens, a"] == "mean 3.2  (1–9: 4)"
    assert table["length in tokens, b"] == "mean 3.5  (1–9: 4)"
    assert table["batches an epoch"] == "1"
    assert table["padding"] == "25.0 % of the tokens", "27 of 4 x 4 + 4 x 5"
    weights = load_model(tmp_path / "run").model.parameters()
    assert table["parameters"] == f"{sum(each.numel() for each in weights):,}"
    for row in ("memory with the largest batch", "memory kept at most"):
        number, unit = table[row].split()
        assert int(number.replace(",", "")) > 0 and unit == "MiB"


@pytest.mark.parametrize(
    ("text", "line", "round_trip"),
    [
        ({"subword": "char"}, "AB Ｃ q", "AB C q"),
        ({"subword": "char", "normalization": "identity"}, "AB Ｃ q", "AB Ｃ q"),
        ({"subword": "char", "normalization": "nfkc_cf"}, "AB Ｃ q", "ab c q"),
        ({"subword": "char", "character_coverage": 0.98}, "ab q", "ab <unk>"),
        ({"subword": "bpe", "vocab_size": 20}, "ab 漢", "ab <unk>"),
        ({"subword": "bpe", "vocab_size": 280, "byte_fallback": True}, "ab 漢", "ab 漢"),
    ],
)
@pytest.mark.parametrize("shared_vocab", [True, False])
def test_a_vocabulary_is_learned_as_its_section_says(
    make_recipe: MakeRecipe, tmp_path: Path, text: dict[str, object], line: str, round_trip: str, shared_vocab: bool
) -> None:
    lines = ["ab ab c"] * 80 + ["AB Ｃ"] * 2 + ["q"]  # A, B, C and q are one character in ninety
    write(tmp_path, "train", lines, lines)
    write(tmp_path, "dev", ["c"], ["c"])
    recipe = make_recipe(data={"root": str(tmp_path)}, text={**text, "shared_vocab": shared_vocab})
    tokenizers = learn_tokenizers(open_corpora(recipe.data), recipe.text, lambda _: None)
    for tokenizer in tokenizers.src, tokenizers.trg:
        assert tokenizer.decode(tokenizer.encode([line])) == [round_trip]


def test_pairs_that_differ_in_blanks_and_case_are_the_same_pair(make_recipe: MakeRecipe, tmp_path: Path) -> None:
    write(tmp_path, "train", ["The cat", "a dog"], ["Die Katze", "ein Hund"])
    write(tmp_path, "dev", ["the  CAT ", "a dog", "a dog"], ["die katze", "Hund", "ein Hund"])
    corpora = open_corpora(make_recipe(data={"root": str(tmp_path)}).data)
    assert corpora.n_train_pairs == 2
    assert count_overlap(corpora) == {"dev": 2}


def test_of_a_share_the_model_learns_and_of_all_pairs_the_vocabulary(make_recipe: MakeRecipe, tmp_path: Path) -> None:
    """CH-128: the points of a learning curve have one vocabulary."""
    write(tmp_path, "train", ["one", "two", "three", "four"], ["eins", "zwei", "drei", "vier"])
    write(tmp_path, "dev", ["one"], ["eins"])
    recipe = make_recipe(
        data={"root": str(tmp_path), "share": 0.5}, text={"subword": "word", "vocab_size": 20, "shared_vocab": False}
    )
    corpora = open_corpora(recipe.data)
    assert corpora.n_train_pairs == 2
    tokenizers = learn_tokenizers(corpora, recipe.text, lambda _: None)
    assert UNK_ID not in tokenizers.src.encode(["one two three four"])[0]
    store = build_train_store(corpora, recipe, tokenizers)
    _, trg_rows = store.rows(range(len(store)))
    assert tokenizers.trg.decode([row.tolist() for row in trg_rows]) == ["zwei", "vier"]


def test_the_rehearsal_leaves_weights_and_random_numbers_alone(
    make_recipe: MakeRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rehearse = preflight.rehearse
    compared = []

    def watched(trainer: Trainer) -> preflight.Rehearsal:
        before = nn.utils.parameters_to_vector(trainer.model.parameters()).detach().clone()
        random_state = torch.get_rng_state()
        rehearsal = rehearse(trainer)
        assert torch.equal(nn.utils.parameters_to_vector(trainer.model.parameters()), before)
        assert torch.equal(torch.get_rng_state(), random_state)
        assert all(parameter.grad is None for parameter in trainer.model.parameters())
        assert trainer.position == Position()
        assert not trainer.optimizer.state
        compared.append(rehearsal.peak_memory_mib)
        return rehearsal

    monkeypatch.setattr(experiment.preflight, "rehearse", watched)
    train(make_recipe(train={"updates": 1, "optimizer": "adamw", "weight_decay": 0.5}), tmp_path / "run", device="cpu")
    assert len(compared) == 1
    assert compared[0] > 0


def test_a_batch_that_does_not_fit_is_found_before_the_first_update(
    make_recipe: MakeRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Trainer, batch: object) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(Trainer, "loss", refuse)
    with pytest.raises(TrainingError, match=r"out of memory on batches of .* tokens .*no room"):
        train(make_recipe(), tmp_path / "run", device="cpu")
