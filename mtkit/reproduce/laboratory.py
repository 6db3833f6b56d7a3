"""Where a study's models and translations are: trained once, translated once, found again by the next command.

OUTPUT/
  models/NAME-DIGEST/seed-N/     a run folder like any other; studies share a model of the same recipe
  models/NAME-DIGEST/seed-N.json its trainer has come to the end
  translations/DIGEST.json       a test set, translated by some models with some search
  STUDY/                         the report
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import statistics
import sysconfig
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import mtkit
from mtkit.analyze.steps import counted_steps
from mtkit.checkpoint import LoadedModel, load_model, weights_sum
from mtkit.data.sources import Bitext, check_aligned, open_bitext
from mtkit.errors import DataError, DivergedError, RequestError
from mtkit.models import TranslationModel, parse_config
from mtkit.recipe import DataSection, FilePair, Recipe, load_recipe
from mtkit.reproduce.evaluation import translate_all
from mtkit.reproduce.findings import Measured
from mtkit.reproduce.known import known_rows
from mtkit.reproduce.matching import matched_widths
from mtkit.reproduce.study import Settings, Training
from mtkit.reproduce.verdict import Sample
from mtkit.search.ensemble import load_ensemble
from mtkit.search.translator import Translator
from mtkit.text.lines import open_output
from mtkit.train.log import dev_curve, read_metrics, to_stderr
from mtkit.train.precision import resolve_device

# What does not make another model: what is tested, when a machine's patience ends, what is shown and kept.
_NO_PART_OF_A_MODEL = ("max_minutes", "keep", "seed", "sample_translations", "report_every")
STEEP = 1.25  # times as much dev BLEU as at the look before: still learning, so that more updates may change the order
_APART = 1000  # between the seeds of two members


class Place(NamedTuple):
    """One training with one seed."""

    training: Training
    seed: int
    recipe: Recipe
    run: Path

    @property
    def name(self) -> str:
        return f"{self.training.label}, seed {self.recipe.train.seed}"

    @property
    def record(self) -> Path:
        """The file that says that the training has come to its end."""
        return self.run.with_name(f"{self.run.name}.json")

    @property
    def is_finished(self) -> bool:
        """Whether its recipe would train it no further."""
        return self.is_finished_within(self.recipe.train.max_minutes)

    def is_finished_within(self, minutes: float | None) -> bool:
        """Whether so many minutes of training, or any number (None), would not train it further."""
        if not self._recorded():
            return False
        cut = self.cut_after
        return cut is None or (minutes is not None and minutes <= cut)

    @property
    def cut_after(self) -> float | None:
        """The minutes after which it was stopped, before what its recipe asks for; None if it was not."""
        return self._recorded().get("cut_after")

    @property
    def end(self) -> str:
        """Why the training ended."""
        return str(self._recorded().get("end", ""))

    @property
    def still_learning(self) -> str:
        """How dev BLEU rose between the last two looks at it, where that is by a quarter or more; else nothing."""
        curve = dev_curve(self.run, "update")[-2:]
        if len(curve) < 2 or curve[1][1] < STEEP * curve[0][1] or curve[1][1] == 0:
            return ""
        (earlier, low), (later, high) = curve
        return f"{self.name} from {low:.1f} at update {earlier:,.0f} to {high:.1f} at {later:,.0f}"

    @property
    def has_diverged(self) -> bool:
        return bool(self._recorded().get("diverged"))

    def _recorded(self) -> dict[str, Any]:
        return _read_object(self.record)


class Search(NamedTuple):
    """How a study translates; None is what the recipe says."""

    beam_size: int | None = None
    length_penalty: float | None = None
    unknown: str | None = None


class ParallelText(NamedTuple):
    """A test set."""

    sources: list[str]
    references: list[str]


class Translated(NamedTuple):
    """A test set and its translations."""

    sources: list[str]
    references: list[str]
    hypotheses: list[str]
    scores: list[float]  # log-probability / length penalty, as search ranks
    seconds: float
    decoder_steps: int  # of one hypothesis by one model


class Facts(NamedTuple):
    """What a training took and gave."""

    parameters: int
    updates: int | None  # None, as all below: the log is not there any more
    passes: float | None  # over what the filters have left of the training text
    minutes: float | None
    trg_tokens_per_second: float | None
    dev_ppl: float | None
    dev_bleu: float | None


class Laboratory:
    """The models of a scale, with every seed, and what they translate.

    Args:
        recipes: folder of the recipes.
        overrides: KEY=VALUE for every training, after the study's own.
    """

    def __init__(
        self,
        settings: Settings,
        folder: Path,
        recipes: Path,
        *,
        seeds: int = 1,
        overrides: Sequence[str] = (),
        device: str = "auto",
    ) -> None:
        self.settings = settings
        self.folder = folder
        self.recipes = recipes
        self.seeds = range(1, seeds + 1)
        self.overrides = list(overrides)
        self.device = device
        self._facts: dict[Path, Facts] = {}
        self._places: dict[tuple[Training, int, float | None], Place] = {}
        self._fingerprints: dict[str, str] = {}
        self._n_pairs: dict[str, int] = {}

    def place(self, training: Training, seed: int, *, max_minutes: float | None = None) -> Place:
        """Where a training's run is, or would be.

        Raises: RecipeError.
        """
        asked = (training, seed, max_minutes)
        if asked in self._places:
            return self._places[asked]
        seed += _APART * training.member
        own = [f"train.seed={seed}", *([] if max_minutes is None else [f"train.max_minutes={max_minutes:.3f}"])]
        file, changes = self.recipes / training.recipe, [*training.overrides, *self.overrides, *own]
        recipe = load_recipe(file, changes, parse_model=parse_config)
        if training.passes != 1 and recipe.train.epochs is not None:
            changes.append(f"train.epochs={recipe.train.epochs * training.passes:g}")
            recipe = load_recipe(file, changes, parse_model=parse_config)
        if training.n_parameters is not None:
            widths = matched_widths(recipe, training.n_parameters)
            changes += [f"model.{key}={width}" for key, width in widths.items()]
            recipe = load_recipe(file, changes, parse_model=parse_config)
        digest = _digest(what_makes(recipe, lambda source: self._content(recipe.data, source)))
        run = self.folder / "models" / f"{recipe.name}-{digest}" / f"seed-{seed}"
        self._places[asked] = Place(training, asked[1], recipe, run)
        return self._places[asked]

    def _content(self, data: DataSection, source: FilePair | str) -> str:
        """What a bitext is known by: its name, where that says all; of files the bytes, or where they are missing."""
        if isinstance(source, str) and source.startswith(("synthetic:", "hub:")):
            return source
        name = f"{data.root}: {source}"
        if name not in self._fingerprints:
            try:
                self._fingerprints[name] = _open(data, source).fingerprint()
            except DataError:  # training will say so, or a plan is all that is asked for
                self._fingerprints[name] = name
        return self._fingerprints[name]

    def n_pairs(self, data: DataSection, source: FilePair | str) -> int:
        """The sentence pairs of a bitext, before any filter.

        Raises: DataError.
        """
        name = f"{data.root}: {source}"
        if name not in self._n_pairs:
            self._n_pairs[name] = sum(1 for _ in _open(data, source).pairs())
        return self._n_pairs[name]

    def recipe_file(self, training: Training) -> Recipe:
        """A training's recipe as its file has it, before any override."""
        return load_recipe(self.recipes / training.recipe, parse_model=parse_config)

    def places(self, trainings: Sequence[Training]) -> list[Place]:
        """All trainings with all seeds; seed by seed, so that a study stopped halfway has whole comparisons."""
        return [self.place(training, seed) for seed in self.seeds for training in trainings]

    def model(self, training: Training, seed: int) -> LoadedModel:
        """A trained model.

        Raises: ModelError when it is not there.
        """
        return load_model(self.place(training, seed).run, device=resolve_device(self.device))

    def facts(self, training: Training, seed: int) -> Facts:
        """What a training took and gave."""
        run = self.place(training, seed).run
        if run not in self._facts:
            self._facts[run] = facts_of(run)
        return self._facts[run]

    def dev_ppl(self, training: Training) -> Measured | None:
        """Dev perplexity over the seeds; None where the logs are not there any more."""
        found = [self.facts(training, seed).dev_ppl for seed in self.seeds]
        return Measured(tuple(ppl for ppl in found if ppl is not None)) if None not in found else None

    def test_set(self, training: Training) -> str:
        """The name of the recipe's first test set.

        Raises: RequestError when the recipe has none.
        """
        names = list(self.place(training, self.seeds[0]).recipe.data.test)
        if not names:
            raise RequestError(f"{training.recipe}: names no test set; add one: --set data.test.NAME=SOURCE")
        return names[0]

    def translate(
        self,
        members: Sequence[tuple[Training, int]],
        set_name: str,
        search: Search | None = None,
    ) -> Translated:
        """A test set of the first member's recipe as one model, or an ensemble, translates it; made once."""
        search = search or Search()
        places = [self.place(training, seed) for training, seed in members]

        def make() -> Translated:
            label = " + ".join(place.name for place in places)
            return self._translate(places, self.test_text(places[0].training, set_name), search, label)

        return self.once(make, members, set_name, search)

    def once(
        self,
        make: Callable[[], Translated],
        members: Sequence[tuple[Training, int]],
        set_name: str,
        search: Search,
        *,
        changed: Sequence[str] = (),
    ) -> Translated:
        """What `make` makes of a test set with these models and this search, or what an earlier call has made.

        changed: what is done to the models beside.
        """
        places = [self.place(training, seed) for training, seed in members]
        key = {
            "models": [f"{place.run.parent.name}/{place.run.name} {weights_sum(place.run)}" for place in places],
            "bitext": self._test_bitext(places[0].training, set_name).fingerprint(),
            "search": {**places[0].recipe.search.model_dump(mode="json"), **_given(search)},
        }
        if changed:
            key["changed"] = list(changed)
        kept = self.folder / "translations" / f"{_digest(key)}.json"
        if known := _read_object(kept):
            return Translated(**known["translated"])
        try:
            translated = make()
        except DivergedError as error:
            if not any(place.has_diverged for place in places):
                raise
            label = " + ".join(place.name for place in places)
            to_stderr(f"mtkit: warning: {label}: {error}; it counts as translating nothing")
            tested = self.test_text(places[0].training, set_name)
            n_lines = len(tested.sources)
            translated = Translated(*tested, [""] * n_lines, [-math.inf] * n_lines, 0.0, 0)
        kept.parent.mkdir(parents=True, exist_ok=True)
        with open_output(kept) as stream:
            text = json.dumps({"key": key, "translated": translated._asdict()}, ensure_ascii=False, indent=1)
            stream.write(text.encode("utf-8") + b"\n")
        return translated

    def _test_bitext(self, training: Training, set_name: str) -> Bitext:
        data = self.place(training, self.seeds[0]).recipe.data
        return _open(data, {"dev": data.dev, **data.test}[set_name])

    def _translate(self, places: Sequence[Place], text: ParallelText, search: Search, label: str) -> Translated:
        members, joined = load_ensemble([place.run for place in places], device=resolve_device(self.device))
        # Of the recipe that is asked for: the run may have been trained when it said to search otherwise.
        section = places[0].recipe.search.model_copy(update=_given(search))
        translator = Translator.of(
            joined.model,
            members[0].tokenizers,
            section,
            src_tokenizers=joined.src_tokenizers,
            device=next(joined.model.parameters()).device,
        )
        return translated_by(translator, [member.model for member in members], text, label)

    def alignments(self, training: Training, set_name: str) -> list[list[tuple[int, int]]] | None:
        """The right word links of a test set, where they are known."""
        return self._test_bitext(training, set_name).alignments()

    def dev(self, training: Training) -> list[tuple[str, str]]:
        """The dev pairs of a training."""
        data = self.place(training, self.seeds[0]).recipe.data
        return list(_open(data, data.dev).pairs())

    def test_text(self, training: Training, set_name: str) -> ParallelText:
        """The sentence pairs of a test set.

        Raises: DataError for unequal line counts or no text at all.
        """
        bitext = self._test_bitext(training, set_name)
        check_aligned(bitext)
        sources, references = zip(*bitext.pairs(), strict=True)
        return ParallelText(list(sources), list(references))

    def train_pairs(self, training: Training, most: int = 100_000) -> list[tuple[str, str]]:
        """The first sentence pairs of a training's bitext, before its filters."""
        data = self.place(training, self.seeds[0]).recipe.data
        pairs = itertools.chain(*(_open(data, source).pairs() for source in data.train_bitexts))
        return list(itertools.islice(pairs, most))

    def sample(self, training: Training, set_name: str, search: Search | None = None) -> Sample:
        """A training's translations of a test set with every seed."""
        found = [self.translate([(training, seed)], set_name, search) for seed in self.seeds]
        trg_lang = self.place(training, self.seeds[0]).recipe.data.trg
        places = [self.place(training, seed) for seed in self.seeds]
        return Sample(
            training.label,
            [each.hypotheses for each in found],
            found[0].references,
            trg_lang,
            tuple(place.cut_after for place in places),
            any(place.has_diverged for place in places),
        )

    def still_learning(self, *trainings: Training) -> str:
        """Which of these were still learning fast when they ended, and how fast; nothing if none was."""
        return ", ".join(text for text in (place.still_learning for place in self.places(trainings)) if text)

    def reading_note(self, trainings: Sequence[Training]) -> str:
        """Which systems read the source from its last word to its first."""
        backwards = [
            each.label for each in trainings if self.place(each, self.seeds[0]).recipe.model.get("reverse_source")
        ]
        who = f"The source is read backwards by {', '.join(backwards)}" if backwards else "No system reads backwards"
        return f"{who}. The direction matters to attention too: see mtkit reproduce reversal."

    def known(self, training: Training, translated: Translated) -> list[int]:
        """The rows whose words the training's vocabularies all have, on both sides."""
        tokenizers = self.model(training, self.seeds[0]).tokenizers
        return known_rows(tokenizers, translated.sources, translated.references)


def facts_of(run: Path) -> Facts:
    """What a training took and gave, from its log.

    Raises: ModelError when the run holds no model.
    """
    model = load_model(run).model
    metrics = read_metrics(run)
    reports = [float(entry["trg_tokens_per_second"]) for entry in metrics if "trg_tokens_per_second" in entry]
    validations = [entry for entry in metrics if "dev_bleu" in entry]
    best = max(validations, key=lambda entry: float(entry["dev_bleu"]), default={})
    return Facts(
        sum(parameter.numel() for parameter in model.parameters()),
        max((int(entry["update"]) for entry in metrics), default=None),
        max((float(entry["epoch"]) for entry in metrics if "epoch" in entry), default=None),
        max((float(entry["minutes"]) for entry in metrics), default=None),
        statistics.fmean(reports) if reports else None,
        best.get("dev_ppl"),
        best.get("dev_bleu"),
    )


def translated_by(
    translator: Translator, models: Sequence[TranslationModel], text: ParallelText, label: str
) -> Translated:
    """What a translator makes of a test set, with its time and the steps of the models in it."""
    with counted_steps(models) as steps:
        translations, seconds = translate_all(translator, text.sources, label)
    hypotheses = [translation.text for translation in translations]
    scores = [translation.hypotheses[0].score for translation in translations]
    return Translated(*text, hypotheses, scores, seconds, steps.rows)


def what_makes(recipe: Recipe, content: Callable[[FilePair | str], Any]) -> dict[str, Any]:
    """The part of a recipe that decides which model comes out, but for the seed.

    content: what stands for a bitext of training or of dev.
    """
    made = recipe.model_dump(mode="json")
    for key in ("name", "paper", "search"):
        del made[key]
    del made["data"]["test"]
    made["data"]["filters"] = recipe.data.filters.content()
    # A variant that a later version adds and this recipe does not have makes no other model.
    made["model"] = {key: value for key, value in made["model"].items() if value is not None}
    for key in _NO_PART_OF_A_MODEL:
        made["train"].pop(key)
    if recipe.train.ends_by == "max_minutes":
        made["train"]["max_minutes"] = recipe.train.max_minutes  # nothing else says how long it learns
    del made["data"]["root"]  # the same text makes the same model wherever it lies
    train = recipe.data.train
    made["data"]["train"] = [content(each) for each in train] if isinstance(train, list) else content(train)
    made["data"]["dev"] = content(recipe.data.dev)
    return made


def _open(data: DataSection, source: FilePair | str) -> Bitext:
    """One of a recipe's bitexts."""
    return open_bitext(source, src=data.src, trg=data.trg, root=Path(data.root or "."))


def _given(search: Search) -> dict[str, Any]:
    return {key: value for key, value in search._asdict().items() if value is not None}


def _read_object(file: Path) -> dict[str, Any]:
    """A JSON object that an earlier command has kept; nothing where there is none, or one that is damaged."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:10]


def recipes_folder() -> Path:
    """The recipes that come with mtkit: beside the package in a checkout, among the environment's data if installed.

    Raises: RequestError when there are none.
    """
    package = Path(mtkit.__file__).parent
    for folder in (package.parent / "recipes", Path(sysconfig.get_path("data")) / "share" / "mtkit" / "recipes"):
        if (folder / "toy" / "common.yaml").is_file():
            return folder
    raise RequestError(f"{package}: comes without its recipes; name their folder with --recipes")
