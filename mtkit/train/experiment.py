"""One recipe, one run folder: start it, or go on where it stopped."""

from __future__ import annotations

import fcntl
import io
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel
from rich.console import Console

from mtkit import models
from mtkit.checkpoint import (
    RECIPE_FILE,
    TOKENIZER_FOLDER,
    Checkpoint,
    checkpoints_folder,
    clean_up,
    list_updates,
    load_checkpoint,
    set_aside,
    tokenizer_fingerprints,
)
from mtkit.data.store import TokenStore
from mtkit.errors import ModelError, RecipeError, RequestError
from mtkit.evaluate.bleu import ScoreSettings, check_settings
from mtkit.recipe import Recipe, dump_recipe, load_recipe
from mtkit.search.translator import Translator
from mtkit.text.lines import open_output
from mtkit.text.tokenizer import PAD_ID, Tokenizers
from mtkit.train import preflight
from mtkit.train.corpus import Corpora, build_train_store, count_overlap, learn_tokenizers, open_corpora
from mtkit.train.log import LOG_FILE, METRICS_FILE, TrainingLog, to_stderr
from mtkit.train.precision import Precision, resolve_device, resolve_precision
from mtkit.train.signals import StopRequest
from mtkit.train.trainer import DevTask, Outcome, Trainer
from mtkit.train.validation import make_dev_set

# What may differ between a run and the recipe that continues it: where the data lies (its content is looked at), when
# to stop, what is shown and kept, how to search. Everything else would make another model.
_MAY_CHANGE = {
    "data.root",
    "data.test",
    "search",
    "paper",
    *(
        f"train.{key}"
        for key in (
            *("updates", "epochs", "max_minutes", "patience", "min_lr"),
            *("keep", "average_last", "sample_translations", "report_every"),
        )
    ),
}


def train(recipe: Recipe, run: Path, *, resume: bool = False, restart: bool = False, device: str = "auto") -> Outcome:
    """Train what the recipe says in folder `run`; a run of the same recipe that is there already is continued.

    Raises: RequestError (nothing is written) for a recipe, text or folder that cannot be used; TrainingError when
    training cannot go on.
    """
    config = check_recipe(recipe)
    the_device = resolve_device(device)
    precision = resolve_precision(recipe.train.precision, the_device)
    _check_folder(recipe, run, resume=resume, restart=restart)
    corpora = open_corpora(recipe.data)
    torch.manual_seed(recipe.train.seed)
    fresh = restart or not _is_begun(run)
    # Up to here a wrong request has written nothing; learning the vocabulary still comes before the folder.
    tokenizers = _learn(corpora, recipe) if fresh else Tokenizers.load(run / TOKENIZER_FOLDER)
    store = _build_store(corpora, recipe, tokenizers)
    try:
        run.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RequestError(f"{run}: cannot be made ({error.strerror}); choose another --output") from error
    with _alone_in(run):
        if fresh and not restart and _is_begun(run):
            raise RequestError(f"{run}: another trainer has been at work in this folder; give the command again")
        content = {
            "tokenizers": tokenizer_fingerprints(tokenizers),
            "bitext": store.key,
            "dev": corpora.dev.fingerprint(),
        }
        found = None if fresh else _newest_checkpoint(run, content)
        if fresh:
            _start_folder(run, recipe, tokenizers)
        else:
            _write_recipe(run, recipe)
        log = TrainingLog(run, keep_until=found[1].state["update"] if found else 0)
        try:
            trainer = _build_trainer(
                recipe, run, config, corpora, tokenizers, store, log, the_device, precision, content
            )
            if found:
                trainer.restore(found[1], found[0])
                log.say(f"{run}: going on after update {trainer.position.update:,}")
            rehearsal = preflight.rehearse(trainer)
            if not found:
                _show_preflight(recipe, corpora, store, trainer, rehearsal)
            with StopRequest() as stop:
                outcome = trainer.train(stop)
            log.say(_last_words(run, outcome))
        finally:
            log.close()
    return outcome._replace(exit_status=stop.exit_status)


def _is_begun(run: Path) -> bool:
    """Whether there is something to lose: a run that never reached its first checkpoint starts from nothing."""
    return (run / RECIPE_FILE).is_file() and any(checkpoints_folder(run).glob("[!.]*"))


def _check_folder(recipe: Recipe, run: Path, *, resume: bool, restart: bool) -> None:
    if resume and restart:
        raise RequestError("--resume and --restart contradict each other")
    _check_writable(run)
    has_run = (run / RECIPE_FILE).is_file()
    if has_run:
        with _alone_in(run):
            clean_up(run)
    if resume and not has_run:
        raise RequestError(f"{run}: there is no run to resume")
    if not has_run and run.is_dir() and {entry.name for entry in run.iterdir()} - {".lock", TOKENIZER_FOLDER}:
        raise RequestError(f"{run}: holds something else than a run; choose another --output")
    if _is_begun(run) and not restart:
        if not list_updates(run):
            raise RequestError(f"{run}: holds a model, but no checkpoint to go on from; choose another --output")
        before, now = load_recipe(run / RECIPE_FILE).model_dump(), recipe.model_dump()
        differing = sorted(_differences(before, now, _MAY_CHANGE - _curve_of(recipe)))
        if differing:
            raise RequestError(
                f"{run}: holds a run of another recipe (it differs in {', '.join(differing[:5])}); choose another "
                "--output, or --restart to train anew in its place"
            )


def _curve_of(recipe: Recipe) -> set[str]:
    """What shapes a cosine from its beginning, among the keys that may change."""
    if recipe.train.schedule != "cosine":
        return set()
    ends = ["updates", "epochs", "max_minutes"]
    return {f"train.{key}" for key in ends[: ends.index(recipe.train.ends_by) + 1]}


def _check_writable(run: Path) -> None:
    """Find out before the work that the run folder cannot be made, written or read again."""
    if any("\ud800" <= character <= "\udfff" for character in str(run.absolute())):
        raise RequestError(
            f"{run}: a name that is no UTF-8, in which safetensors finds no file; choose another --output"
        )
    place = next(folder for folder in (run, *run.absolute().parents) if folder.exists())
    if not place.is_dir():
        raise RequestError(f"{place}: is a file; --output names the folder of the run")
    if not os.access(place, os.W_OK | os.X_OK):
        raise RequestError(f"{place}: cannot be written; choose another --output")


def _differences(
    old: Mapping[str, Any], new: Mapping[str, Any], may_change: set[str], prefix: str = ""
) -> Iterator[str]:
    for key in old.keys() | new.keys():
        name = prefix + key
        if name in may_change or old.get(key) == new.get(key):
            continue
        if isinstance(old.get(key), Mapping) and isinstance(new.get(key), Mapping):
            yield from _differences(old[key], new[key], may_change, name + ".")
        else:
            yield name


def check_recipe(recipe: Recipe) -> BaseModel:
    """The backend's Config, after a look at what no section of a recipe can see alone.

    Raises: RequestError for a model that does not fit the rest, or a target language that cannot be scored here.
    """
    config = models.parse_config(recipe.model)
    check_settings(ScoreSettings(trg_lang=recipe.data.trg))
    if getattr(config, "tied_embeddings", None) == "three_way" and not recipe.text.shared_vocab:
        raise RecipeError("model.tied_embeddings: three_way needs text.shared_vocab: true; use two_way or none")
    needs_attention = {"unknown: replace": recipe.search.unknown == "replace"}
    needs_attention["coverage_penalty"] = recipe.search.coverage_penalty > 0
    for what, wanted in needs_attention.items():
        if wanted and not _has_attention(recipe):
            raise RecipeError(f"search.{what}: needs a model with attention, which this {recipe.model['type']} has not")
    if recipe.train.schedule == "noam" and not hasattr(config, "d_model"):
        raise RecipeError(f"train.schedule: noam needs a model with a d_model, which {recipe.model['type']} has not")
    return config


def _has_attention(recipe: Recipe) -> bool:
    """Of the model that the recipe describes; none of its weights takes memory."""
    with torch.device("meta"):
        return models.build(recipe.model, 8, 8, PAD_ID).has_attention


@contextmanager
def _alone_in(run: Path) -> Iterator[None]:
    """Hold the folder's lock; the system lets go of it when the process ends, however it ends.

    Raises: RequestError when another trainer holds it.
    """
    with (run / ".lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise RequestError(f"{run}: another trainer is at work in this folder") from error
        yield


def _learn(corpora: Corpora, recipe: Recipe) -> Tokenizers:
    text = recipe.text
    if text.shared_vocab:
        what = f"one {text.subword} vocabulary of {text.vocab_size:,} tokens"
    else:
        sizes = f"{text.vocab_size:,} and {text.trg_vocab_size or text.vocab_size:,}"
        what = f"two {text.subword} vocabularies of {sizes} tokens"
    to_stderr(f"learning {what}")
    return learn_tokenizers(corpora, text, to_stderr)


def _build_store(corpora: Corpora, recipe: Recipe, tokenizers: Tokenizers) -> TokenStore:
    to_stderr(f"reading {corpora.n_train_pairs:,} training pairs")
    return build_train_store(corpora, recipe, tokenizers)


def _start_folder(run: Path, recipe: Recipe, tokenizers: Tokenizers) -> None:
    """Leave nothing of an older run, then write what does not change during the run.

    The recipe, which says that there is a run, goes first and comes last.
    """
    for name in (RECIPE_FILE, "best", "last", METRICS_FILE, LOG_FILE):
        (run / name).unlink(missing_ok=True)
    for folder in (run / "checkpoints", run / TOKENIZER_FOLDER, *run.glob("evaluation*")):
        shutil.rmtree(folder, ignore_errors=True)
    tokenizers.save(run / TOKENIZER_FOLDER)
    _write_recipe(run, recipe)


def _write_recipe(run: Path, recipe: Recipe) -> None:
    """Whole or not at all: a recipe cut in the middle would take its run with it."""
    with open_output(run / RECIPE_FILE) as stream:
        stream.write(dump_recipe(recipe).encode("utf-8"))


def _newest_checkpoint(run: Path, content: Mapping[str, Any]) -> tuple[Path, Checkpoint] | None:
    """The newest checkpoint that is whole; a damaged one is named and put aside. None when there is none at all.

    Raises: ModelError when there are checkpoints and none can be read: to start from nothing is for the user to say;
    or when it was made of another content.
    """
    damaged: list[Path] = []
    for update in reversed(list_updates(run)):
        folder = checkpoints_folder(run) / f"update-{update}"
        try:
            found = load_checkpoint(folder)
        except ModelError as error:
            damaged.append(folder)
            to_stderr(f"mtkit: warning: {error}")
            continue
        _check_content(folder, found.state, content)
        for each in damaged:
            to_stderr(
                f"mtkit: warning: {each.name} is put aside as {set_aside(each).name}; going back to {folder.name}"
            )
        return folder, found
    if damaged:
        raise ModelError(f"{run}: none of its checkpoints can be read; --restart trains anew in their place")
    return None


def _check_content(source: Path, state: Mapping[str, Any], content: Mapping[str, Any]) -> None:
    """Raises: ModelError when a checkpoint was made with other tokenizers, training or dev text than there are now."""
    for what, own in content.items():
        if what in state and state[what] != own:  # a checkpoint of before knows nothing of its dev text
            text = {"dev": "dev text"}.get(what, what)
            raise ModelError(
                f"{source}: was trained with another content of the {text} than there is now; bring that back, or "
                "choose another --output"
            )


def _build_trainer(
    recipe: Recipe,
    run: Path,
    config: BaseModel,
    corpora: Corpora,
    tokenizers: Tokenizers,
    store: TokenStore,
    log: TrainingLog,
    device: torch.device,
    precision: Precision,
    content: dict[str, Any],
) -> Trainer:
    model = models.build(recipe.model, tokenizers.src.vocab_size, tokenizers.trg.vocab_size, PAD_ID)
    translator = Translator.of(model, tokenizers, recipe.search, beam_size=1, device=device, warn=log.say)
    dev = make_dev_set(list(corpora.dev.pairs()), tokenizers)
    return Trainer(
        run,
        model,
        recipe.train,
        store,
        DevTask(dev, translator, recipe.data.trg),
        log,
        device=device,
        precision=precision,
        d_model=getattr(config, "d_model", None),
        saved_with_model=content,
    )


def _show_preflight(
    recipe: Recipe, corpora: Corpora, store: TokenStore, trainer: Trainer, rehearsal: preflight.Rehearsal
) -> None:
    table = preflight.preflight_table(recipe, store, trainer, rehearsal, count_overlap(corpora), corpora.n_held_out)
    drawn = io.StringIO()
    Console(file=drawn, width=min(120, shutil.get_terminal_size((120, 24)).columns)).print(table)
    trainer.log.say(drawn.getvalue().rstrip())


def _last_words(run: Path, outcome: Outcome) -> str:
    if outcome.interrupted:
        return (
            f"{run}: stopped by {outcome.reason} after update {outcome.update:,}; the same command goes on from there"
        )
    best = f"best: {outcome.best_name}, dev {outcome.best:.2f}" if outcome.best is not None else "no best checkpoint"
    return f"{run}: done after update {outcome.update:,} ({outcome.reason}); {best}"
