"""Recipes: what they say, what they inherit, where their paths start, and the sentence about each mistake."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from mtkit.errors import RecipeError, RequestError
from mtkit.recipe import BackendSchema, FilePair, Recipe, dump_recipe, load_recipe, recipe_schema

RECIPES = Path(__file__).parent.parent / "recipes"
SHIPPED = sorted(path for path in RECIPES.glob("*/*.yaml") if path.stem not in ("common", "recurrent"))

TOY = """\
name: toy
data:
  src: en
  trg: de
  train: corpus/train
  dev: corpus/dev
model: {type: transformer}
train:
  updates: 10
"""


class Config(BaseModel):
    """A backend's Config as far as a recipe is concerned."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    d_model: int = Field(default=512, ge=2)
    n_heads: int = 8
    norm: Literal["pre", "post"] = "post"
    dropout: float = Field(default=0.1, ge=0, lt=1)
    window: tuple[int, int] | None = None

    @model_validator(mode="after")
    def _heads_divide_width(self) -> Config:
        if self.d_model % self.n_heads:
            raise ValueError(f"n_heads: {self.n_heads} does not divide d_model {self.d_model}")
        return self


def parse_model(section: Mapping[str, Any]) -> BaseModel:
    if section["type"] not in ("transformer", "luong"):
        raise RequestError(f"model.type: expected one of luong, transformer; got '{section['type']}'")
    preset = {"d_model": 64} if section.get("preset") == "small" else {}
    return Config(**{**preset, **{key: value for key, value in section.items() if key not in ("type", "preset")}})


Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes a recipe file and gives its name, seen from the current directory."""
    monkeypatch.chdir(tmp_path)

    def write_file(text: str, name: str = "toy.yaml") -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
        return name

    return write_file


def message(path: str, *overrides: str) -> str:
    with pytest.raises(RecipeError) as caught:
        load_recipe(path, overrides, parse_model=parse_model)
    return str(caught.value)


def with_model(keys: str) -> str:
    return TOY.replace("{type: transformer}", "{type: transformer, " + keys + "}")


def with_train(lines: str) -> str:
    return TOY.replace("  updates: 10\n", lines)


MISTAKES = {
    "a misspelt key of the model": (
        with_model("n_headz: 4"),
        "toy.yaml:7: model.n_headz: unknown key; did you mean 'n_heads'?",
    ),
    "a misspelt key": (
        with_train("  updates: 10\n  optimzer: adam\n"),
        "toy.yaml:10: train.optimzer: unknown key; did you mean 'optimizer'?",
    ),
    "a missing section": (TOY[: TOY.index("train:\n")], "toy.yaml: train: required key is missing"),
    "a missing key": (TOY.replace("  src: en\n", ""), "toy.yaml:2: data.src: required key is missing"),
    "a word for an integer": (
        with_train("  updates: ten\n"),
        "toy.yaml:9: train.updates: expected an integer, got 'ten'",
    ),
    "a fraction for an integer": (
        with_train("  updates: 1.5\n"),
        "toy.yaml:9: train.updates: expected an integer, got 1.5",
    ),
    "a word for a number": (
        with_train("  updates: 1\n  lr: fast\n"),
        "toy.yaml:10: train.lr: expected a number, got 'fast'",
    ),
    "a switch for a number": (
        with_train("  updates: 1\n  patience: true\n"),
        "toy.yaml:10: train.patience: expected a number, got true",
    ),
    "infinity": (
        with_train("  max_minutes: .inf\n"),
        "toy.yaml:9: train.max_minutes: expected a finite number, got inf",
    ),
    "a number for a switch": (
        TOY + "text: {byte_fallback: 7}\n",
        "toy.yaml:10: text.byte_fallback: expected true or false, got 7",
    ),
    "a number for a text": (
        TOY.replace("name: toy", "name: 2024"),
        "toy.yaml:1: name: expected text, got 2024; put it in quotes",
    ),
    "an unknown choice of the model": (
        with_model("norm: mid"),
        "toy.yaml:7: model.norm: expected one of pre, post; got 'mid'",
    ),
    "an unknown choice": (
        TOY + "text: {subword: bpa}\n",
        "toy.yaml:10: text.subword: expected one of bpe, unigram, char, word; got 'bpa'",
    ),
    "an unknown backend": (
        TOY.replace("type: transformer", "type: transfrmer"),
        "toy.yaml:7: model.type: expected one of luong, transformer; got 'transfrmer'",
    ),
    "no backend": (
        TOY.replace("{type: transformer}", "{n_heads: 8}"),
        "toy.yaml:7: model.type: required key is missing",
    ),
    "a backend that is no name": (
        TOY.replace("type: transformer", "type: [a]"),
        "toy.yaml:7: model.type: expected the name of a backend",
    ),
    "a preset that is no name": (
        with_model("preset: [a]"),
        "toy.yaml:7: model.preset: expected the name of a preset",
    ),
    "a relation inside the model": (
        with_model("n_heads: 7"),
        "toy.yaml:7: model.n_heads: 7 does not divide d_model 512",
    ),
    "a relation": (
        with_train("  updates: 1\n  average_last: 5\n"),
        "toy.yaml:10: train.average_last: 5 needs keep >= 5, got 3",
    ),
    "a decay without its optimizer": (
        with_train("  updates: 1\n  weight_decay: 0.01\n"),
        "toy.yaml:10: train.weight_decay: 0.01 needs optimizer adamw, got adam",
    ),
    "a momentum without its optimizer": (
        with_train("  updates: 1\n  momentum: 0.9\n"),
        "toy.yaml:10: train.momentum: 0.9 needs optimizer sgd, got adam",
    ),
    "a constant of another optimizer": (
        with_train("  updates: 1\n  rho: 0.9\n  optimizer: adamw\n"),
        "toy.yaml:10: train.rho: 0.9 needs optimizer adadelta, got adamw",
    ),
    "averages that are not taken": (
        with_train("  updates: 1\n  betas: [0.9, 0.999]\n  optimizer: adadelta\n"),
        "toy.yaml:10: train.betas: needs optimizer adam or adamw, got adadelta",
    ),
    "an epsilon without a division": (
        with_train("  updates: 1\n  eps: 1e-6\n  optimizer: sgd\n  lr: 1\n"),
        "toy.yaml:10: train.eps: 1e-06 needs optimizer adam or adamw or adadelta, got sgd",
    ),
    "Nesterov's way with no momentum": (
        with_train("  updates: 1\n  nesterov: true\n  optimizer: sgd\n  lr: 1\n"),
        "toy.yaml:10: train.nesterov: needs a momentum above 0",
    ),
    "gradient descent without a rate": (
        with_train("  updates: 1\n  optimizer: sgd\n"),
        "toy.yaml:8: train.lr: required key is missing; sgd has no rate of its own",
    ),
    "a decay that never comes": (
        with_train("  updates: 1\n  decay_after: 8\n  schedule: plateau\n"),
        "toy.yaml:10: train.decay_after: 8 needs schedule halving, got plateau",
    ),
    "a lowest rate that is never reached": (
        with_train("  updates: 1\n  min_lr: 1e-4\n"),
        "toy.yaml:10: train.min_lr: 0.0001 needs schedule plateau, got inverse_sqrt",
    ),
    "a target vocabulary of one that is shared": (
        TOY + "text: {trg_vocab_size: 500}\n",
        "toy.yaml:10: text.trg_vocab_size: needs shared_vocab false",
    ),
    "words as bytes": (
        TOY + "text: {subword: word, byte_fallback: true}\n",
        "toy.yaml:10: text.byte_fallback: needs pieces of words, got subword word",
    ),
    "no end of training": (
        with_train("  lr: 1\n"),
        "toy.yaml:8: train: one of updates, epochs, max_minutes is required",
    ),
    "too small": (with_train("  updates: 0\n"), "toy.yaml:9: train.updates: expected a number >= 1, got 0"),
    "not above a bound": (
        with_train("  updates: 1\n  lr: -1\n"),
        "toy.yaml:10: train.lr: expected a number > 0, got -1",
    ),
    "too large": (
        with_train("  updates: 1\n  label_smoothing: 1\n"),
        "toy.yaml:10: train.label_smoothing: expected a number < 1, got 1",
    ),
    "a repeated key": (
        with_train("  updates: 10\n  updates: 20\n"),
        "toy.yaml: line 10: duplicate key 'updates'",
    ),
    "a repeated section": (TOY + "train: {updates: 3}\n", "toy.yaml: line 10: duplicate key 'train'"),
    "a key one level too high": (
        TOY + "label_smoothing: 0.1\n",
        "toy.yaml:10: label_smoothing: unknown key; did you mean 'train.label_smoothing'?",
    ),
    "a key of the model one level too high": (
        TOY + "dropout: 0.1\n",
        "toy.yaml:10: dropout: unknown key; did you mean 'model.dropout'?",
    ),
    "a key of the search in the training": (
        with_train("  updates: 1\n  beam_size: 5\n"),
        "toy.yaml:10: train.beam_size: unknown key; did you mean 'search.beam_size'?",
    ),
    "an option of the command line": (
        with_train("  updates: 1\n  replace_unk: true\n"),
        "toy.yaml:10: train.replace_unk: unknown key",
    ),
    "a name from another tool": (
        with_train("  updates: 1\n  batch_size: 64\n"),
        "toy.yaml:10: train.batch_size: unknown key; did you mean 'batch_tokens'?",
    ),
    "a misspelt side is not also missing": (
        TOY.replace("train: corpus/train", "train: {src: s, tgt: t}"),
        "toy.yaml:5: data.train.tgt: unknown key; did you mean 'trg'?",
    ),
    "half a pair of files": (
        TOY.replace("train: corpus/train", "train: [a, {src: s}]"),
        "toy.yaml:5: data.train.1.trg: required key is missing",
    ),
    "a number for a source": (
        TOY.replace("dev: corpus/dev", "dev: 5"),
        "toy.yaml:6: data.dev: expected a source of sentence pairs (text, or the keys src and trg), got 5",
    ),
    "no source at all": (
        TOY.replace("train: corpus/train", "train: []"),
        "toy.yaml:5: data.train: expected at least 1 value(s), got 0",
    ),
    "a name that leaves its folder": (
        TOY.replace("name: toy", "name: ../toy"),
        "toy.yaml:1: name: expected letters, digits, '_', '-' and '.', got '../toy'",
    ),
    "a parent folder as a name": (
        TOY.replace("name: toy", "name: .."),
        "toy.yaml:1: name: expected letters, digits, '_', '-' and '.', got '..'",
    ),
    "a list for a section": (
        TOY.replace("{type: transformer}", "[transformer]"),
        "toy.yaml:7: model: expected keys and values, got a list",
    ),
    "an empty section": (TOY + "search:\n", "toy.yaml:10: search: expected keys and values, got nothing"),
    "too few values": (
        with_train("  updates: 1\n  betas: [0.9]\n"),
        "toy.yaml:10: train.betas: value number 2 is missing",
    ),
    "too many values": (
        with_train("  updates: 1\n  betas: [0.9, 0.98, 0.99]\n"),
        "toy.yaml:10: train.betas: expected at most 2 value(s), got 3",
    ),
    "a list for a file": ("- a\n- b\n", "toy.yaml: expected keys and values, got a list"),
    "a text for a file": ("a recipe\n", "toy.yaml: expected keys and values, got 'a recipe'"),
    "nothing": ("", "toy.yaml: the recipe is empty"),
    "no YAML": (
        "name: toy\ndata: {src: en\nmodel: x\n",
        "toy.yaml:3: not YAML: while parsing a flow mapping, expected ',' or '}', but got ':'",
    ),
    "a control character": ("name: toy\ndata: \x01\n", "toy.yaml:2: not YAML: the character U+0001 is not allowed"),
    "two documents": (
        "name: toy\n---\nname: toy\n",
        "toy.yaml:2: not YAML: expected a single document in the stream, but found another document",
    ),
    "an object": (
        "name: !!python/object:os.system x\n",
        "toy.yaml:1: not YAML: could not determine a constructor for the tag "
        "'tag:yaml.org,2002:python/object:os.system'",
    ),
    "brackets without end": ("[" * 5000, "toy.yaml: nested too deeply"),
    "an anchor inside itself": ("a: &a [*a]\n", "toy.yaml: nested too deeply"),
    "anchors that multiply": (
        "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
        "b: &b [*a, *a, *a, *a, *a, *a, *a, *a, *a, *a]\n"
        "c: &c [*b, *b, *b, *b, *b, *b, *b, *b, *b, *b]\n"
        "d: &d [*c, *c, *c, *c, *c, *c, *c, *c, *c, *c]\n",
        "toy.yaml: more than 10000 keys and values",
    ),
}


@pytest.mark.parametrize(("text", "expected"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_told_with_its_line(write: Write, text: str, expected: str) -> None:
    assert message(write(text)) == expected


def test_three_mistakes_are_told_at_once_and_the_others_counted(write: Write) -> None:
    text = with_model("n_headz: 4").replace("  updates: 10", "  updates: ten\n  lr: 0\n  eps: 0")
    assert message(write(text)) == (
        "toy.yaml:7: model.n_headz: unknown key; did you mean 'n_heads'?\n"
        "toy.yaml:9: train.updates: expected an integer, got 'ten'\n"
        "toy.yaml:10: train.lr: expected a number > 0, got 0\n"
        "and 1 more"
    )


def test_the_file_is_named_as_the_user_named_it(write: Write) -> None:
    write(with_train("  updates: ten\n"), "sub/toy.yaml")
    assert message("./sub/toy.yaml") == "./sub/toy.yaml:9: train.updates: expected an integer, got 'ten'"


def test_a_missing_recipe_is_named(write: Write) -> None:
    assert message("nosuch.yaml") == "nosuch.yaml: no such file"


def test_a_folder_is_no_recipe(write: Write) -> None:
    write(TOY, "sub/toy.yaml")
    assert message("sub") == "sub: is a directory"


def test_bytes_that_are_not_utf8_are_told_with_their_line(write: Write, tmp_path: Path) -> None:
    write(TOY)
    (tmp_path / "toy.yaml").write_bytes(b"name: toy\ndata: \xff\n")
    assert message("toy.yaml") == "toy.yaml:2: not UTF-8"


def test_a_recipe_holds_what_was_written_and_defaults_for_the_rest(write: Write, tmp_path: Path) -> None:
    recipe = load_recipe(write(TOY))
    assert (recipe.name, recipe.data.src, recipe.data.trg) == ("toy", "en", "de")
    assert recipe.train.updates == 10
    assert recipe.model == {"type": "transformer"}
    assert recipe.train.betas == (0.9, 0.98)
    assert recipe.data.test == {}


def test_no_on_and_yes_are_words_and_numbers_need_no_point(write: Write) -> None:
    text = TOY.replace("src: en", "src: no").replace("trg: de", "trg: on").replace("dev: corpus/dev", "dev: yes")
    text = text.replace("  updates: 10", "  updates: 1e5\n  lr: 1e-4") + "text: {byte_fallback: yes}\n"
    recipe = load_recipe(write(text))
    assert (recipe.data.src, recipe.data.trg, recipe.data.dev) == ("no", "on", "yes")
    assert recipe.train.lr == 0.0001
    assert recipe.train.updates == 100_000
    assert recipe.text.byte_fallback is True


def test_keys_are_texts_whatever_they_look_like(write: Write) -> None:
    text = TOY.replace("  dev:", "  test: {2016: a, no: b, 2020-01-01: c, null: d}\n  dev:")
    assert load_recipe(write(text)).data.test == {"2016": "a", "no": "b", "2020-01-01": "c", "null": "d"}


def test_a_date_is_a_text(write: Write) -> None:
    assert load_recipe(write(TOY.replace("name: toy", "name: 2024-05-01"))).name == "2024-05-01"


def test_windows_line_ends_and_a_byte_order_mark_are_read(write: Write, tmp_path: Path) -> None:
    plain = load_recipe(write(TOY))
    assert load_recipe(write("\ufeff" + TOY.replace("\n", "\r\n"))) == plain


def test_a_recipe_cannot_be_changed(write: Write) -> None:
    recipe = load_recipe(write(TOY))
    with pytest.raises(ValidationError):
        recipe.train.updates = 3


def test_sources_may_be_a_list(write: Write) -> None:
    text = TOY.replace("train: corpus/train", "train: [a, {src: b, trg: c}, 'synthetic:train,pairs=5']")
    assert load_recipe(write(text)).data.train == ["a", FilePair(src="b", trg="c"), "synthetic:train,pairs=5"]


# --- extends


def test_a_child_wins_key_by_key(write: Write) -> None:
    write(TOY + "search: {beam_size: 7, length_penalty: 0.5}\n", "base.yaml")
    write("extends: base.yaml\nname: child\ntrain: {lr: 0.5}\n", "middle.yaml")
    recipe = load_recipe(write("extends: middle.yaml\nsearch: {beam_size: 3}\n"))
    assert recipe.name == "child"
    assert (recipe.train.updates, recipe.train.lr) == (10, 0.5)
    assert (recipe.search.beam_size, recipe.search.length_penalty) == (3, 0.5)


def test_a_model_of_another_type_inherits_no_fields(write: Write) -> None:
    write(with_model("d_model: 64, dropout: 0.3"), "base.yaml")
    same = load_recipe(write("extends: base.yaml\nmodel: {type: transformer, d_model: 128}\n"))
    assert same.model == {"type": "transformer", "d_model": 128, "dropout": 0.3}
    other = load_recipe(write("extends: base.yaml\nmodel: {type: luong, norm: pre}\n"))
    assert other.model == {"type": "luong", "norm": "pre"}


def test_no_test_set_is_called_dev(write: Write) -> None:
    """`mtkit evaluate --set dev` and what is kept of it are data.dev's."""
    write(TOY.replace("  dev:", "  test: {dev: x}\n  dev:"))
    assert "data: test.dev: dev is data.dev" in message("toy.yaml")


def test_a_test_set_is_dropped_by_null(write: Write) -> None:
    write(TOY.replace("  dev:", "  test: {a: x, b: y}\n  dev:"), "base.yaml")
    recipe = load_recipe(write("extends: base.yaml\ndata: {test: {a: null, c: z}}\n"))
    assert recipe.data.test == {"b": "y", "c": "z"}


def test_a_mistake_in_a_parent_names_the_parent(write: Write) -> None:
    write(with_train("  updates: ten\n"), "base/base.yaml")
    write("extends: ../base/base.yaml\nname: child\n", "sub/toy.yaml")
    assert message("sub/toy.yaml") == "sub/../base/base.yaml:9: train.updates: expected an integer, got 'ten'"


def test_a_missing_parent_names_the_child(write: Write) -> None:
    assert message(write("name: x\nextends: nosuch.yaml\n")) == "toy.yaml:2: extends: nosuch.yaml: no such file"


def test_a_circle_of_parents_is_refused(write: Write) -> None:
    write("extends: toy.yaml\n", "base.yaml")
    assert message(write("extends: base.yaml\n")) == "base.yaml:1: extends: toy.yaml: inherits from itself"


def test_one_parent_at_a_time(write: Write) -> None:
    assert message(write("extends: [a.yaml, b.yaml]\n")) == "toy.yaml:1: extends: expected one file name"


# --- paths


def test_relative_sources_start_from_the_folder_of_the_recipe(write: Write, tmp_path: Path) -> None:
    write(TOY, "sub/toy.yaml")
    recipe = load_recipe("sub/toy.yaml")
    assert recipe.data.root == str(tmp_path / "sub")
    assert recipe.data.train == "corpus/train"


def test_relative_sources_of_a_parent_start_from_its_folder(write: Write, tmp_path: Path) -> None:
    write(TOY.replace("  dev:", "  test: {a: x, b: {src: y, trg: /z}}\n  dev:"), "base/base.yaml")
    write("extends: ../base/base.yaml\ndata: {dev: mine}\n", "sub/toy.yaml")
    data = load_recipe("sub/toy.yaml").data
    assert data.root == str(tmp_path / "sub")
    assert data.dev == "mine"
    assert data.train == str(tmp_path / "base" / "corpus" / "train")
    assert data.test == {"a": str(tmp_path / "base" / "x"), "b": FilePair(src=str(tmp_path / "base" / "y"), trg="/z")}


def test_a_root_is_relative_to_its_file_and_holds_for_all_sources(write: Write, tmp_path: Path) -> None:
    write(TOY.replace("  src: en", "  root: ../corpora\n  src: en"), "base/base.yaml")
    write("extends: ../base/base.yaml\ndata: {dev: mine}\n", "sub/toy.yaml")
    data = load_recipe("sub/toy.yaml").data
    assert data.root == str(tmp_path / "corpora")
    assert (data.train, data.dev) == ("corpus/train", "mine")


def test_a_root_given_as_override_holds_for_the_sources_of_the_recipe(write: Write, tmp_path: Path) -> None:
    path = write(TOY, "sub/toy.yaml")
    data = load_recipe(path, ["data.root=/corpora/multi30k"]).data
    assert (data.root, data.train) == ("/corpora/multi30k", "corpus/train")
    assert load_recipe(path, ["data.root=corpora"]).data.root == str(tmp_path / "corpora")


def test_a_source_given_as_override_starts_from_the_current_directory(write: Write, tmp_path: Path) -> None:
    path = write(TOY.replace("  src: en", "  root: /corpora\n  src: en"), "sub/toy.yaml")
    assert load_recipe(path, ["data.train=mine"]).data.train == str(tmp_path / "mine")
    both = load_recipe(path, ["data.train=mine", "data.root=/other"]).data
    assert (both.root, both.train) == ("/other", "mine")


def test_what_is_no_path_is_left_alone(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    path = write(TOY.replace("dev: corpus/dev", "dev: hub:wmt/wmt14:validation"), "sub/toy.yaml")
    data = load_recipe(path, ["data.train=synthetic:train,pairs=100"]).data
    assert (data.train, data.dev) == ("synthetic:train,pairs=100", "hub:wmt/wmt14:validation")
    assert load_recipe(path, ["data.train=~/train"]).data.train == "/home/someone/train"


def test_blanks_commas_and_foreign_letters_stay_in_paths(write: Write, tmp_path: Path) -> None:
    write(TOY.replace("corpus/train", "dir ü, x/train file"), "dir ü, x/toy.yaml")
    data = load_recipe("dir ü, x/toy.yaml").data
    assert (data.root, data.train) == (str(tmp_path / "dir ü, x"), "dir ü, x/train file")


# --- overrides


def test_overrides_are_read_as_yaml_and_the_last_one_wins(write: Write) -> None:
    overrides = ["train.updates=5", "train.updates=6", "train.lr=1e-4", "train.patience=null", "search={beam_size: 2}"]
    overrides += ["data.trg=no", "train.betas=[0.8, 0.9]"]
    recipe = load_recipe(write(with_train("  updates: 10\n  patience: 3\n")), overrides)
    assert (recipe.train.updates, recipe.train.lr, recipe.train.patience) == (6, 0.0001, None)
    assert (recipe.search.beam_size, recipe.data.trg, recipe.train.betas) == (2, "no", (0.8, 0.9))


def test_an_override_of_the_model_type_leaves_the_old_fields_behind(write: Write) -> None:
    recipe = load_recipe(write(with_model("d_model: 64")), ["model.n_heads=2", "model.type=luong"])
    assert recipe.model == {"type": "luong", "n_heads": 2}


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("train.updats=5", "--set train.updats: unknown key; did you mean 'updates'?"),
        ("training.updates=5", "--set training: unknown key; did you mean 'train'?"),
        ("foo.updates=5", "--set foo: unknown key"),
        ("train.updates=ten", "--set train.updates: expected an integer, got 'ten'"),
        ("train.updates", "--set train.updates: expected KEY=VALUE, as in train.updates=100"),
        ("=5", "--set =5: expected KEY=VALUE, as in train.updates=100"),
        ("model.n_heads=7", "--set model.n_heads: 7 does not divide d_model 512"),
        ("train=5", "--set train: expected keys and values, got 5"),
        ("extends=other.yaml", "--set extends: unknown key"),
        (
            "train.betas=[1",
            "--set train.betas: not YAML: while parsing a flow sequence, expected ',' or ']', but got '<stream end>'",
        ),
    ],
)
def test_a_mistake_in_an_override_is_told_as_such(write: Write, override: str, expected: str) -> None:
    assert message(write(TOY), override) == expected


# --- the model section


def test_the_resolved_model_spells_out_its_preset(write: Write) -> None:
    recipe = load_recipe(write(with_model("preset: small, n_heads: 2")), parse_model=parse_model)
    assert recipe.model == {
        "type": "transformer", "d_model": 64, "n_heads": 2, "norm": "post", "dropout": 0.1, "window": None
    }  # fmt: skip


# --- dump and schema


def test_a_dumped_recipe_is_read_back_equal_from_another_folder(write: Write) -> None:
    text = TOY.replace("name: toy", "name: '1e-4'").replace("src: en", "src: no").replace("trg: de", "trg: 'null'")
    text = text.replace("corpus/train", "'a: b #c'").replace("corpus/dev", "'*x'")
    text = text.replace(
        "  dev:", '  test: {2016: "tab\\tü\\u2028\\x85 ~", b: {src: "017", trg: " 2020-01-01"}}\n  dev:'
    )
    text = text.replace("{type: transformer}", "{type: transformer, window: [3, 4], dropout: 1e-9}")
    recipe = load_recipe(write(text, "sub/toy.yaml"), parse_model=parse_model)
    dumped = dump_recipe(recipe)
    again = load_recipe(write(dumped, "runs/toy/recipe.yaml"), parse_model=parse_model)
    assert again == recipe
    assert dump_recipe(again) == dumped
    assert load_recipe("runs/toy/recipe.yaml") == recipe
    assert recipe.name == "1e-4"
    assert recipe.data.train == "a: b #c"


def test_a_dumped_recipe_names_every_key_once_in_the_order_of_the_sections(write: Write) -> None:
    lines = dump_recipe(load_recipe(write(TOY))).splitlines()
    top_level = [line.split(":")[0] for line in lines if not line.startswith((" ", "-"))]
    assert top_level == ["name", "paper", "data", "text", "model", "train", "search"]
    start = lines.index("search:")
    assert [line.strip().split(":")[0] for line in lines[start + 1 :]] == list(
        type(load_recipe("toy.yaml").search).model_fields
    )
    assert "  patience: null" in lines


def test_the_schema_describes_every_key_and_the_fields_of_each_backend() -> None:
    schema = recipe_schema([BackendSchema("transformer", Config, ("base", "big"))])
    assert set(schema["properties"]) == {*Recipe.model_fields, "extends"}
    assert schema["additionalProperties"] is False
    assert schema["anyOf"][0] == {"required": ["extends"]}
    assert schema["anyOf"][1]["required"] == ["name", "data", "model", "train"]
    assert schema["$defs"]["TrainSection"]["properties"]["updates"]["description"]
    (section,) = schema["properties"]["model"]["anyOf"]
    assert section["properties"]["type"] == {"const": "transformer"}
    assert section["properties"]["preset"]["enum"] == ["base", "big", None]
    assert set(section["properties"]) == {"type", "preset", *Config.model_fields}


def test_every_key_of_a_recipe_is_described() -> None:
    schema = recipe_schema()
    sections = [section for name, section in schema["$defs"].items() if name != "FilePair"]
    undescribed = [
        key
        for section in sections
        for key, value in section.get("properties", {}).items()
        if "description" not in value and "$ref" not in value
    ]
    assert undescribed == []


# --- what an optimizer takes by itself


@pytest.mark.parametrize(
    ("keys", "rate", "epsilon"),
    [
        ("", 1e-3, 1e-9),
        ("  optimizer: adamw\n", 1e-3, 1e-9),
        ("  optimizer: adadelta\n", 1.0, 1e-6),
        ("  optimizer: adadelta\n  lr: 0.5\n  eps: 1e-8\n", 0.5, 1e-8),
        ("  optimizer: sgd\n  lr: 0.7\n", 0.7, 1e-9),
    ],
)
def test_an_optimizer_brings_its_own_constants(write: Write, keys: str, rate: float, epsilon: float) -> None:
    """Adadelta: Zeiler (2012) has no rate, and Cho et al. (2014) take 10^-6."""
    recipe = load_recipe(write(with_train("  updates: 1\n" + keys)))
    assert (recipe.train.lr, recipe.train.eps) == (rate, epsilon)
    assert load_recipe(write(dump_recipe(recipe), "again.yaml")).train == recipe.train, "a dump spells them out"


def test_null_drops_an_inherited_constant(write: Write) -> None:
    write(with_train("  updates: 1\n  eps: 1e-7\n  lr: 0.002\n"), "adam.yaml")
    child = write("extends: adam.yaml\ntrain: {optimizer: adadelta, eps: null, lr: null}\n")
    train = load_recipe(child).train
    assert (train.optimizer, train.lr, train.eps) == ("adadelta", 1.0, 1e-6)


# --- the recipes that come with the product


@pytest.mark.parametrize("path", SHIPPED, ids=[f"{path.parent.name}-{path.stem}" for path in SHIPPED])
def test_a_shipped_recipe_is_sound_and_its_name_its_own(path: Path) -> None:
    from mtkit.models import parse_config

    recipe = load_recipe(path, parse_model=parse_config)
    assert recipe.name == f"{path.parent.name}-{path.stem.replace('_', '-')}"


# Vaswani et al. (2017): table 3 for the sizes, sections 5 and 6.1 for the rest.
@pytest.mark.parametrize(
    ("name", "d_model", "d_ff", "n_heads", "dropout", "updates", "averaged"),
    [
        ("transformer_base", 512, 2048, 8, 0.1, 100_000, 5),
        ("transformer_big", 1024, 4096, 16, 0.3, 300_000, 20),
    ],
)
def test_the_wmt14_recipes_are_the_published_ones(
    name: str, d_model: int, d_ff: int, n_heads: int, dropout: float, updates: int, averaged: int
) -> None:
    from mtkit.models import parse_config

    recipe = load_recipe(RECIPES / "wmt14" / f"{name}.yaml", parse_model=parse_config)
    model, train, search = recipe.model, recipe.train, recipe.search
    assert (model["d_model"], model["d_ff"], model["n_heads"], model["n_layers"]) == (d_model, d_ff, n_heads, 6)
    assert (model["dropout"], model["norm"]) == (dropout, "post")
    assert (recipe.text.subword, recipe.text.vocab_size, recipe.text.shared_vocab) == ("bpe", 37_000, True)
    assert train.batch_tokens * train.accumulate == 25_000
    assert (train.optimizer, train.betas, train.eps) == ("adam", (0.9, 0.98), 1e-9)
    assert (train.schedule, train.lr, train.warmup_updates) == ("noam", 1, 4000)
    assert (train.updates, train.label_smoothing, train.average_last) == (updates, 0.1, averaged)
    assert (search.beam_size, search.length_penalty, search.length_normalization) == (4, 0.6, "gnmt")
    assert (search.max_length_ratio, search.max_length_extra) == (1.0, 50)
