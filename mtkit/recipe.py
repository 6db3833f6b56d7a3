"""The recipe: one YAML file, one experiment, as frozen pydantic models."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError, field_validator, model_validator
from pydantic_core import PydanticCustomError
from ruamel.yaml import YAML

from mtkit.errors import RecipeError, RequestError
from mtkit.recipe_errors import (
    NAME_PATTERN,
    OVERRIDE,
    UNION_TAGS,
    Key,
    Mistake,
    Places,
    known_keys,
    mistakes_of,
    place_of,
    report,
)
from mtkit.recipe_files import merge, read_file, read_override

_NUMBERS = (int, float, int | None, float | None)
_FILES, _NAME, _LIST = UNION_TAGS


class Section(BaseModel):
    """A part of a recipe: unknown keys are refused, nothing changes after reading."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _numbers_are_not_switches(cls, value: Any, info: Any) -> Any:
        """Refuse `patience: true`, which pydantic would read as 1."""
        if isinstance(value, bool) and cls.model_fields[info.field_name].annotation in _NUMBERS:
            raise PydanticCustomError("switch_for_number", "expected a number")
        return value


class FilePair(Section):
    """Two aligned text files (plain, .gz, .bz2, .xz, .zst)."""

    src: str = Field(min_length=1, description="file of the source side")
    trg: str = Field(min_length=1, description="file of the target side")


def _kind_of_source(value: Any) -> str | None:
    """Which member of a union of sources a value is meant to be, so that a mistake is told once."""
    if isinstance(value, (dict, FilePair)):
        return _FILES
    if isinstance(value, str):
        return _NAME
    return _LIST if isinstance(value, list) else None


# A source of sentence pairs is a FilePair or one string:
#   corpus/train            the aligned files corpus/train.<src> and corpus/train.<trg>, or both .gz, .bz2, .xz, .zst
#   corpus/train.tsv        two tab-separated columns, source first (.tsv, also compressed)
#   corpus/train.jsonl      an object a line, with the language codes as keys (.jsonl, also compressed)
#   hub:NAME[:SPLIT][,src=COLUMN][,trg=COLUMN][,config=NAME]   a Hugging Face dataset name or a local dataset folder;
#                           without src and trg its columns are named by the language codes, also inside a
#                           `translation` column; without config it is the one named by them, such as de-en
#   synthetic:SPLIT[,pairs=N][,min_words=N][,max_words=N][,seed=N]   the embedded grammar; SPLIT is train, dev or test
_AFilePair = Annotated[FilePair, Tag(_FILES)]
_AName = Annotated[str, Field(min_length=1), Tag(_NAME)]
Source = Annotated[_AFilePair | _AName, Discriminator(_kind_of_source)]
_Sources = Annotated[list[Source], Field(min_length=1), Tag(_LIST)]
Name = Annotated[str, Field(pattern=NAME_PATTERN)]


# fmt: off
Script = Literal[
    "arabic", "armenian", "bengali", "cyrillic", "devanagari", "georgian", "greek", "han", "hangul", "hebrew",
    "japanese", "khmer", "lao", "latin", "tamil", "telugu", "thai",
]
# fmt: on


class FilterSection(Section):
    """Which sentence pairs are dropped before training; each drop is counted by cause."""

    max_length: int = Field(
        default=256,
        ge=1,
        description="longest side in tokens (with subword: word, in words and punctuation marks); "
        "a pair with a longer one is dropped",
    )
    max_ratio: float | None = Field(default=None, gt=1, description="largest ratio between the two lengths in tokens")
    drop_duplicates: bool = Field(default=False, description="drop a pair that stood before in the training text")
    src_script: Script | None = Field(
        default=None,
        description="drop a pair most of whose source letters are of another script than this, such as cyrillic; "
        "japanese and hangul may hold han, too",
    )
    trg_script: Script | None = Field(default=None, description="the same for the target")

    def content(self) -> dict[str, Any]:
        """What decides on the pairs that stay. Keys of a later version count where they are set: others would make
        another text of what was kept before there were any.
        """
        later = {"src_script", "trg_script"}
        return self.model_dump(exclude={key for key in later if getattr(self, key) is None})


class DataSection(Section):
    """Where the sentence pairs come from."""

    src: str = Field(description="language code of the source, as in file names")
    trg: str = Field(description="language code of the target")
    root: str | None = Field(
        default=None, description="folder that relative sources start from; default: the recipe's folder"
    )
    train: Annotated[_AFilePair | _AName | _Sources, Discriminator(_kind_of_source)] = Field(
        description="training bitext, one source or a list"
    )
    share: float = Field(
        default=1.0,
        gt=0,
        le=1,
        description="part of the training pairs to learn from, spread evenly over each source, for learning curves; "
        "the vocabulary is still learned from all",
    )
    dev: Source = Field(description="development bitext: measured while training, never learned from")
    test: dict[Name, Source] = Field(default_factory=dict, description="test sets by name, for mtkit evaluate")
    filters: FilterSection = FilterSection()

    @model_validator(mode="after")
    def _calls_no_test_set_dev(self) -> DataSection:
        if "dev" in self.test:
            raise ValueError("test.dev: dev is data.dev, and mtkit evaluate --set dev scores that; choose another name")
        return self

    @property
    def sources(self) -> list[tuple[str, FilePair | str]]:
        """Every source with its key, such as `data.test.news`."""
        numbers = [f".{index}" for index in range(len(self.train))] if isinstance(self.train, list) else [""]
        train = [(f"data.train{number}", source) for number, source in zip(numbers, self.train_bitexts, strict=True)]
        tests = [(f"data.test.{name}", source) for name, source in self.test.items()]
        return [*train, ("data.dev", self.dev), *tests]

    @property
    def train_bitexts(self) -> list[FilePair | str]:
        """The sources of `train`, also where it is a single one."""
        return list(self.train) if isinstance(self.train, list) else [self.train]


class TextSection(Section):
    """How text becomes tokens; learned by SentencePiece and kept inside the run folder."""

    subword: Literal["bpe", "unigram", "char", "word"] = Field(
        default="bpe", description="kind of token; word: the most frequent words, all others are <unk>"
    )
    vocab_size: int = Field(default=8000, ge=8, description="number of tokens, the four special symbols included")
    trg_vocab_size: int | None = Field(
        default=None, ge=8, description="the same for the target side, where it has its own; null = vocab_size"
    )
    shared_vocab: bool = Field(default=True, description="one vocabulary for both languages")
    normalization: Literal["nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf", "identity"] = Field(
        default="nmt_nfkc", description="SentencePiece normalisation rule; the _cf rules also fold case"
    )
    character_coverage: float = Field(
        default=1.0, ge=0.98, le=1, description="share of the characters that the vocabulary covers"
    )
    byte_fallback: bool = Field(
        default=False, description="spell unseen characters as bytes instead of <unk> (not with subword: word)"
    )

    @model_validator(mode="after")
    def _spells_no_words(self) -> TextSection:
        if self.byte_fallback and self.subword == "word":
            raise ValueError("byte_fallback: needs pieces of words, got subword word")
        return self

    @model_validator(mode="after")
    def _has_a_target_side_of_its_own(self) -> TextSection:
        if self.trg_vocab_size is not None and self.shared_vocab:
            raise ValueError("trg_vocab_size: needs shared_vocab false")
        return self


DecayRate = Annotated[float, Field(ge=0, lt=1)]

# What an optimizer takes where a recipe says nothing; for adadelta the constants of Zeiler (2012) as Cho et al. (2014)
# use them.
_OWN = {
    "adam": {"lr": 1e-3, "eps": 1e-9},
    "adamw": {"lr": 1e-3, "eps": 1e-9},
    "adadelta": {"lr": 1.0, "eps": 1e-6},
}

# Keys that do nothing with another optimizer or schedule, and so may only have their default there.
_ONLY_WITH = {
    "betas": ("optimizer", ("adam", "adamw")),
    "eps": ("optimizer", ("adam", "adamw", "adadelta")),
    "momentum": ("optimizer", ("sgd",)),
    "nesterov": ("optimizer", ("sgd",)),
    "rho": ("optimizer", ("adadelta",)),
    "weight_decay": ("optimizer", ("adamw",)),
    "decay_factor": ("schedule", ("halving", "plateau")),
    "decay_after": ("schedule", ("halving",)),
    "decay_every": ("schedule", ("halving",)),
    "min_lr": ("schedule", ("plateau",)),
}


class TrainSection(Section):
    """How the model is trained; the first of updates, epochs and max_minutes to be reached ends the run."""

    updates: int | None = Field(default=None, ge=1, description="stop after this many optimizer updates")
    epochs: float | None = Field(default=None, gt=0, description="stop after this many passes over the bitext")
    max_minutes: float | None = Field(default=None, gt=0, description="stop after this many minutes of training")
    batch_tokens: int = Field(
        default=4096, ge=1, description="largest batch, in target tokens (or source tokens if more)"
    )
    batch_sentences: int | None = Field(
        default=None, ge=1, description="most sentence pairs of a batch, beside batch_tokens; null = no such limit"
    )
    accumulate: int = Field(default=1, ge=1, description="batches that make one update")
    normalize: Literal["tokens", "sentences"] = Field(
        default="tokens",
        description="what the gradient of an update is divided by; the papers of 2014-2017 that train with sgd or "
        "adadelta count sentences",
    )
    optimizer: Literal["adam", "adamw", "sgd", "adadelta"] = Field(default="adam", description="optimizer")
    lr: float = Field(
        default=1e-3,
        gt=0,
        description="learning rate; with schedule noam a factor on the paper's rate. Without one, adadelta takes 1; "
        "sgd needs one",
    )
    betas: tuple[DecayRate, DecayRate] = Field(default=(0.9, 0.98), description="decay rates of Adam's two averages")
    eps: float = Field(
        default=1e-9, gt=0, description="epsilon of adam, adamw and adadelta. Without one, adadelta takes 1e-6"
    )
    momentum: float = Field(default=0.0, ge=0, lt=1, description="share of the last step that is kept (sgd)")
    nesterov: bool = Field(default=False, description="Nesterov's momentum (sgd)")
    rho: float = Field(default=0.95, ge=0, lt=1, description="decay rate of the two averages (adadelta)")
    weight_decay: float = Field(default=0.0, ge=0, description="decoupled weight decay (adamw)")
    schedule: Literal["constant", "noam", "inverse_sqrt", "cosine", "halving", "plateau"] = Field(
        default="inverse_sqrt",
        description="learning rate over updates; cosine: to 0 at the last of updates, or else of epochs, or else at "
        "max_minutes (so two runs differ); halving: x decay_factor after decay_after epochs and every decay_every "
        "epochs from there; plateau: x decay_factor at each validation whose loss is not the lowest so far",
    )
    decay_factor: float = Field(default=0.5, gt=0, lt=1, description="see schedule: halving, plateau")
    decay_after: float = Field(default=5.0, ge=0, description="epochs before the first decay (schedule halving)")
    decay_every: float = Field(default=1.0, gt=0, description="epochs between two decays (schedule halving)")
    min_lr: float = Field(default=0.0, ge=0, description="training ends when plateau takes the rate below this")
    warmup_updates: int = Field(default=400, ge=0, description="updates of linear warm-up")
    clip_norm: float | None = Field(default=1.0, gt=0, description="largest gradient norm; null = no clipping")
    label_smoothing: float = Field(default=0.1, ge=0, lt=1, description="probability mass spread over the vocabulary")
    precision: Literal["auto", "fp32", "bf16", "fp16"] = Field(
        default="auto", description="arithmetic of matrix products"
    )
    report_every: int = Field(default=50, ge=1, description="updates between two log lines")
    validate_every: int = Field(default=500, ge=1, description="updates between two looks at the dev set")
    save_every: int = Field(default=500, ge=1, description="updates between two checkpoints")
    keep: int = Field(
        default=3,
        ge=1,
        description="newest checkpoints that are kept, beside the best one and one that a stop has left",
    )
    average_last: int = Field(default=0, ge=0, description="at the end, average this many last checkpoints; 0 = none")
    patience: int | None = Field(
        default=None, ge=1, description="stop after this many validations in a row without improvement"
    )
    best_metric: Literal["bleu", "loss"] = Field(
        default="bleu", description="dev figure that names the best checkpoint"
    )
    sample_translations: int = Field(default=3, ge=0, description="dev sentences shown in the log at each validation")
    max_bad_updates: int = Field(
        default=10, ge=1, description="updates in a row with a loss that is not finite before giving up"
    )
    seed: int = Field(default=1, ge=0, lt=2**63, description="seed of weights, data order and dropout")

    @model_validator(mode="before")
    @classmethod
    def _takes_what_is_the_optimizers_own(cls, keys: Any) -> Any:
        """Fill in lr and eps, also where null drops an inherited one, so that a dumped recipe tells what was used."""
        if not isinstance(keys, dict):
            return keys
        optimizer = keys.get("optimizer", "adam")
        own = _OWN.get(optimizer, {}) if isinstance(optimizer, str) else {}
        return {**keys, **{key: value for key, value in own.items() if keys.get(key) is None}}

    @property
    def ends_by(self) -> Literal["updates", "epochs", "max_minutes"]:
        """The key that says how long it learns; where there are several, the later ones only cut it short."""
        if self.updates is not None:
            return "updates"
        return "epochs" if self.epochs is not None else "max_minutes"

    @model_validator(mode="after")
    def _can_end(self) -> TrainSection:
        if self.updates is None and self.epochs is None and self.max_minutes is None:
            raise ValueError("one of updates, epochs, max_minutes is required")
        return self

    @model_validator(mode="after")
    def _says_nothing_in_vain(self) -> TrainSection:
        for key, (other, fitting) in _ONLY_WITH.items():
            value, got = getattr(self, key), getattr(self, other)
            if got not in fitting and value != type(self).model_fields[key].default:
                shown = f"{value:g} " if isinstance(value, float) else ""
                raise ValueError(f"{key}: {shown}needs {other} {' or '.join(fitting)}, got {got}")
        if self.nesterov and not self.momentum:
            raise ValueError("nesterov: needs a momentum above 0")
        if self.optimizer == "sgd" and "lr" not in self.model_fields_set:
            raise ValueError("lr: required key is missing; sgd has no rate of its own")
        return self

    @model_validator(mode="after")
    def _keeps_what_it_averages(self) -> TrainSection:
        if self.average_last > self.keep:
            raise ValueError(f"average_last: {self.average_last} needs keep >= {self.average_last}, got {self.keep}")
        return self


class SearchSection(Section):
    """How a trained model is decoded unless the command line says otherwise."""

    beam_size: int = Field(default=5, ge=1, description="1 = greedy")
    length_penalty: float = Field(default=1.0, ge=0, le=10, description="alpha; 0 = plain log-probability")
    length_normalization: Literal["power", "gnmt"] = Field(
        default="power", description="power: |Y|^alpha; gnmt: ((5+|Y|)/6)^alpha; |Y| counts EOS"
    )
    max_length_ratio: float = Field(
        default=2.0, ge=0, description="longest translation = ratio x source tokens + extra"
    )
    max_length_extra: int = Field(default=20, ge=1, description="see max_length_ratio")
    coverage_penalty: float = Field(
        default=0.0, ge=0, description="beta; adds beta x log of the attention that source words lack (Wu et al. 2016)"
    )
    unknown: Literal["forbid", "keep", "replace"] = Field(
        default="forbid",
        description="<unk> in a translation; replace: by the source word that it looks at most (Luong et al. 2015)",
    )
    max_source_tokens: int = Field(default=1000, ge=1, description="longer source lines are cut here, with a warning")


class Recipe(Section):
    """One experiment."""

    name: Name = Field(description="name of the run; its folder is runs/NAME")
    paper: Name | None = Field(
        default=None,
        description="the published system that this is; mtkit recipe explain compares the settings with it",
    )
    data: DataSection
    text: TextSection = TextSection()
    model: dict[str, Any] = Field(description="type, optional preset, and fields of that backend's Config")
    train: TrainSection
    search: SearchSection = SearchSection()

    @field_validator("model")
    @classmethod
    def _names_a_backend(cls, model: dict[str, Any]) -> dict[str, Any]:
        if "type" not in model:
            raise ValueError("type: required key is missing")
        if not isinstance(model["type"], str):
            raise ValueError("type: expected the name of a backend")
        if not isinstance(model.get("preset"), str | None):
            raise ValueError("preset: expected the name of a preset")
        return model


def load_recipe(
    path: str | Path,
    overrides: Sequence[str] = (),
    *,
    parse_model: Callable[[Mapping[str, Any]], BaseModel] | None = None,
) -> Recipe:
    """The recipe of a YAML file, complete and checked; no file of the data is looked at.

    `extends: other.yaml` inherits: mappings are merged key by key and the nearer file wins; only a model section of
    another `type` replaces the inherited one whole, and a test set given as null is dropped. Overrides
    (`train.updates=100`, values as in YAML) come last.

    Relative sources start from `data.root`, wherever it is given; without one, from the folder of the file in which
    they stand. A relative path in an override starts from the current directory, or from a root that is also given by
    an override. In the result `data.root` is always an absolute path, so that the recipe means the same when it is
    dumped to another folder.

    parse_model: checks the model section (`mtkit.models.parse_config`). With it, the result spells out every size and
    names no preset: what a recipe means does not change when a preset does.

    Raises: RecipeError with up to three mistakes, one a line, each `file:line: key: what is wrong[; cure]`.
    """
    tree, places = _read(path, overrides)
    known = known_keys(Recipe) + [("model", "type"), ("model", "preset")]
    mistakes: list[Mistake] = []
    config = None
    section: Any = tree.get("model")
    if parse_model is not None and _names_backend(section):
        known += _backend_keys(section["type"], parse_model)
        try:
            config = parse_model(section)
        except RequestError as error:
            name, _, what = str(error).partition(": ")
            mistakes.append(Mistake(tuple(name.split(".")), what))
        except ValidationError as error:
            mistakes += mistakes_of(error, section, known, ("model",))
    recipe: Recipe | None = None
    try:
        recipe = Recipe.model_validate(tree)
    except ValidationError as error:
        mistakes = mistakes_of(error, tree, known) + mistakes
    if mistakes or recipe is None:
        raise RecipeError(report(mistakes, places))
    changed: dict[str, Any] = {"data": _settle_paths(recipe.data, places)}
    if config is not None:
        changed["model"] = {"type": section["type"], **config.model_dump(mode="json")}
    return recipe.model_copy(update=changed)


def written_places(path: str | Path, overrides: Sequence[str] = ()) -> Places:
    """Where each setting that a recipe writes was written, whatever presets and defaults add to them: in its file, in
    one that it extends, or in an override. What a nearer file or an override replaces is not there any more.

    Raises: RecipeError when a file cannot be read as keys and values.
    """
    tree, places = _read(path, overrides)
    found: Places = {}

    def collect(section: dict[str, Any], above: Key) -> None:
        for name, value in section.items():
            key = (*above, name)
            if isinstance(value, dict) and value:
                collect(value, key)
            else:
                found[key] = places[key]

    collect(tree, ())
    return found


def _read(path: str | Path, overrides: Sequence[str]) -> tuple[dict[str, Any], Places]:
    """The keys and values of a recipe before they are checked, and where each was written."""
    tree, places = read_file(str(path))
    changes: dict[str, Any] = {}
    for override in overrides:
        key, value, value_places = read_override(override)
        for depth in range(1, len(key)):
            places.setdefault(key[:depth], value_places[key])
        places.update(value_places)
        for part in reversed(key):
            value = {part: value}
        changes = merge(changes, value)
    return _without_dropped_tests(merge(tree, changes)), places


def dump_recipe(recipe: Recipe) -> str:
    """The recipe as YAML, every key with its value; `load_recipe` reads an equal recipe back from it."""
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]  # keys stay in the order above
    yaml.width = 1_000_000  # a long path stays on its line
    text = io.StringIO(newline="\n")
    yaml.dump(recipe.model_dump(mode="json"), text)
    return text.getvalue()


class BackendSchema(NamedTuple):
    """What a schema says of one backend."""

    name: str
    config: type[BaseModel]
    presets: Sequence[str]


def recipe_schema(backends: Sequence[BackendSchema] = ()) -> dict[str, Any]:
    """The JSON Schema of a recipe file, for editors; with backends, of their model sections too.

    Keys are required only where nothing is inherited through `extends`.
    """
    schema = Recipe.model_json_schema()
    definitions, keys = schema["$defs"], schema["properties"]
    keys["extends"] = {"type": "string", "description": "recipe file that this one inherits from and overrides"}
    whole = {
        "required": schema.pop("required"),
        "properties": {
            "data": {"required": definitions["DataSection"].pop("required")},
            "model": {"required": ["type"]},
        },
    }
    schema["anyOf"] = [{"required": ["extends"]}, whole]
    choices = []
    for backend in backends:
        section = backend.config.model_json_schema(ref_template=f"#/$defs/{backend.name}.{{model}}")
        for name, definition in section.pop("$defs", {}).items():
            definitions[f"{backend.name}.{name}"] = definition
        section["title"] = backend.name
        section["properties"] = {
            "type": {"const": backend.name},
            "preset": {"enum": [*backend.presets, None], "description": "named sizes; other keys change them"},
            **section.get("properties", {}),
        }
        choices.append(section)
    if choices:
        keys["model"] = {"description": keys["model"]["description"], "anyOf": choices}
    return schema


def _without_dropped_tests(tree: dict[str, Any]) -> dict[str, Any]:
    """The tree without the test sets that a nearer file or an override sets to null."""
    data = tree.get("data")
    if not (isinstance(data, dict) and isinstance(data.get("test"), dict)):
        return tree
    kept = {name: source for name, source in data["test"].items() if source is not None}
    return {**tree, "data": {**data, "test": kept}}


def _names_backend(section: Any) -> bool:
    """Whether a model section can be handed to a backend; Recipe says what is wrong with any other."""
    return (
        isinstance(section, dict)
        and isinstance(section.get("type"), str)
        and isinstance(section.get("preset"), str | None)
    )


def _backend_keys(name: str, parse_model: Callable[[Mapping[str, Any]], BaseModel]) -> list[Key]:
    """The keys of a backend's model section, seen on its default Config; none for an unknown backend."""
    try:
        return [("model", key) for key in type(parse_model({"type": name})).model_fields]
    except (RequestError, ValidationError):
        return []


def _settle_paths(data: DataSection, places: Places) -> DataSection:
    """The data section with an absolute root; a source that does not start from it becomes absolute too."""
    root_place = place_of(("data", "root"), places) if data.root is not None else places[()]
    root = _join(root_place.folder, data.root or "")

    def settle_path(path: str, key: Key) -> str:
        path = os.path.expanduser(path)
        place = place_of(key, places)
        from_root = data.root is not None and (place.file != OVERRIDE or root_place.file == OVERRIDE)
        return path if from_root or str(place.folder) == root else _join(place.folder, path)

    def settle(source: FilePair | str, key: Key) -> FilePair | str:
        if isinstance(source, FilePair):
            return FilePair(src=settle_path(source.src, (*key, "src")), trg=settle_path(source.trg, (*key, "trg")))
        return source if source.startswith(("hub:", "synthetic:")) else settle_path(source, key)

    train, key = data.train, ("data", "train")
    changed = {
        "root": root,
        "train": [settle(source, (*key, index)) for index, source in enumerate(train)]
        if isinstance(train, list)
        else settle(train, key),
        "dev": settle(data.dev, ("data", "dev")),
        "test": {name: settle(source, ("data", "test", name)) for name, source in data.test.items()},
    }
    return data.model_copy(update=changed)


def _join(folder: Path, path: str) -> str:
    return os.path.normpath(os.path.join(folder, os.path.expanduser(path)))
