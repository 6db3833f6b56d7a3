"""A run folder: recipe, tokenizer, weights, optimizer, data position. Nothing in it is pickled.

    runs/NAME/
      recipe.yaml                  the whole resolved recipe
      tokenizer/                   SentencePiece model(s)
      checkpoints/update-N/        model.safetensors, trainer.safetensors, state.json
      best, last                   text files naming a checkpoint, for instance `update-1200`

A checkpoint appears whole or not at all: it is written beside its place, flushed to the disk, then renamed. Its
state.json holds the sha256 of the other files, so that a damaged one is recognised.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from mtkit import models
from mtkit.errors import ModelError, RequestError, TrainingError
from mtkit.recipe import Recipe, load_recipe
from mtkit.text.tokenizer import PAD_ID, Tokenizers

FORMAT = 1
RECIPE_FILE = "recipe.yaml"
TOKENIZER_FOLDER = "tokenizer"
WEIGHTS_FILE = "model.safetensors"
TRAINER_FILE = "trainer.safetensors"
STATE_FILE = "state.json"


class LoadedModel(NamedTuple):
    """A trained translator, ready to search."""

    model: models.TranslationModel
    tokenizers: Tokenizers
    recipe: Recipe
    folder: Path
    name: str  # of the checkpoint
    update: int


class Checkpoint(NamedTuple):
    """What a trainer needs to go on as if it had never stopped."""

    weights: dict[str, Tensor]
    trainer: dict[str, Tensor]
    state: dict[str, Any]


def checkpoints_folder(run: Path) -> Path:
    return run / "checkpoints"


def list_updates(run: Path) -> list[int]:
    """Updates that have a checkpoint, oldest first."""
    found = (re.fullmatch(r"update-(\d+)", entry.name) for entry in checkpoints_folder(run).glob("update-*"))
    return sorted(int(match[1]) for match in found if match)


def unique_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and persistent buffers by name; tied weights appear once, under their first name."""
    kept_buffers = {
        name for name in model.state_dict() if name not in dict(model.named_parameters(remove_duplicate=False))
    }
    tensors: dict[str, Tensor] = dict(model.named_parameters())
    tensors.update((name, buffer) for name, buffer in model.named_buffers() if name in kept_buffers)
    return tensors


def save_checkpoint(
    run: Path, name: str, weights: Mapping[str, Tensor], trainer: Mapping[str, Tensor], state: Mapping[str, Any]
) -> Path:
    """Write `checkpoints/NAME`, whole or not at all.

    Raises: TrainingError when the disk is full or refuses; what was there before is untouched.
    """
    target = checkpoints_folder(run) / name
    aside = target.with_name(f".{name}.part")
    try:
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        sums = {}
        for file, tensors in ((WEIGHTS_FILE, weights), (TRAINER_FILE, trainer)):
            if tensors:
                save_file({key: value.detach().cpu().contiguous() for key, value in tensors.items()}, aside / file)
                _flush(aside / file)
                sums[file] = _sha256(aside / file)
        text = json.dumps({"format": FORMAT, "sha256": sums, **state}, indent=1) + "\n"
        _write_flushed(aside / STATE_FILE, text)
        _flush(aside)
        old = _set_old_aside(target)
        aside.rename(target)
        _flush(target.parent)
        if old is not None:
            shutil.rmtree(old, ignore_errors=True)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(aside, ignore_errors=True)
        raise TrainingError(f"{target}: cannot save the checkpoint ({error}); the ones before it are intact") from error
    return target


def read_state(folder: Path) -> dict[str, Any]:
    """The state.json of a checkpoint folder.

    Raises: ModelError when it is missing, damaged or of another format.
    """
    try:
        state = json.loads((folder / STATE_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{folder}: not a whole checkpoint ({error})") from error
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        raise ModelError(f"{folder}: a checkpoint of another format; this mtkit reads format {FORMAT}")
    if not isinstance(state.get("update"), int) or not isinstance(state.get("sha256"), dict):
        raise ModelError(f"{folder}: not a whole checkpoint ({STATE_FILE} lacks the update or the sums)")
    return state


def read_tensors(folder: Path, file: str, state: Mapping[str, Any]) -> dict[str, Tensor]:
    """The tensors of one file of a checkpoint, on the CPU, checked against the recorded sum.

    Raises: ModelError for a file that is missing or damaged.
    """
    try:
        if _sha256(folder / file) != state["sha256"].get(file):
            raise ModelError(f"{folder / file}: damaged, its content does not match {STATE_FILE}")
        return load_file(folder / file)
    except (OSError, SafetensorError) as error:
        raise ModelError(f"{folder / file}: cannot be read as safetensors ({error})") from error


def load_checkpoint(folder: Path) -> Checkpoint:
    """A whole checkpoint, tensors on the CPU.

    Raises: ModelError for anything that is missing or damaged.
    """
    state = read_state(folder)
    return Checkpoint(read_tensors(folder, WEIGHTS_FILE, state), read_tensors(folder, TRAINER_FILE, state), state)


def copy_weights(model: nn.Module, weights: Mapping[str, Tensor], source: Path) -> None:
    """Fill a model with saved weights.

    Raises: ModelError when names or shapes are not the model's own.
    """
    own = unique_tensors(model)
    _check_fit(own, weights, source)
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(weights[name])


def _check_fit(own: Mapping[str, Tensor], weights: Mapping[str, Tensor], source: Path) -> None:
    """Raises: ModelError when names or shapes of saved weights are not those of a model."""
    missing, foreign = sorted(own.keys() - weights.keys()), sorted(weights.keys() - own.keys())
    if missing or foreign:
        raise ModelError(
            f"{source}: the weights do not fit the recipe's model; missing: {missing[:3] or 'none'}, "
            f"unexpected: {foreign[:3] or 'none'}"
        )
    for name, tensor in own.items():
        if tensor.shape != weights[name].shape:
            raise ModelError(
                f"{source}: {name} has shape {list(weights[name].shape)}, the recipe's model {list(tensor.shape)}"
            )


def write_pointer(run: Path, pointer: str, name: str) -> None:
    """Let `best` or `last` name a checkpoint.

    Raises: TrainingError when the disk is full or refuses; the pointer is as before then.
    """
    aside = run / f".{pointer}.part"
    try:
        _write_flushed(aside, name + "\n")
        aside.replace(run / pointer)
    except OSError as error:
        raise TrainingError(f"{run / pointer}: cannot be written ({error}); the checkpoints are intact") from error


def read_pointer(run: Path, pointer: str) -> str | None:
    """The checkpoint that `best` or `last` names, or None."""
    try:
        name = (run / pointer).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return name if re.fullmatch(r"[\w-]+", name) else None


def remove_updates(run: Path, except_for: Collection[str]) -> None:
    """Delete the checkpoints of updates, but for those that are named."""
    for update in list_updates(run):
        if f"update-{update}" not in except_for:
            _remove(checkpoints_folder(run) / f"update-{update}")


def remove_checkpoint(run: Path, name: str) -> None:
    """Delete one checkpoint, if it is there."""
    _remove(checkpoints_folder(run) / name)


def set_aside(folder: Path) -> Path:
    """Take a damaged checkpoint out of the way, to a name that is no update's; its new place."""
    aside = folder.with_name(f"{folder.name}.damaged")
    _remove(aside)
    return folder.rename(aside)


def average(run: Path, updates: Sequence[int]) -> dict[str, Tensor]:
    """The mean of the weights of several checkpoints of one run (Vaswani et al. 2017, §6.1)."""
    total: dict[str, Tensor] = {}
    for update in updates:
        folder = checkpoints_folder(run) / f"update-{update}"
        for name, tensor in read_tensors(folder, WEIGHTS_FILE, read_state(folder)).items():
            summed = total.get(name)
            total[name] = tensor.double() if summed is None else summed + tensor.double()
    return {name: (tensor / len(updates)).float() for name, tensor in total.items()}


def average_name(updates: Sequence[int]) -> str:
    return f"average-{updates[0]}-{updates[-1]}"


def save_average(run: Path, updates: Sequence[int], name: str | None = None) -> Path:
    """Average checkpoints of a run into a new one, by default average-FIRST-LAST; its folder, which is a model.

    Only under a name that was asked for does it replace an average of other updates, which may be the run's best.

    Raises: RequestError for fewer than two updates or a name that cannot be one; ModelError for a checkpoint that is
    not there or damaged; TrainingError when it cannot be saved.
    """
    if len(updates) < 2:
        raise RequestError("an average needs the updates of at least two checkpoints")
    is_named = name is not None
    name = name or average_name(updates)
    if not re.fullmatch(r"average[\w-]*", name):
        raise RequestError(f"the name of an average is average… in letters, digits, - and _; got '{name}'")
    there = list_updates(run)
    missing = [update for update in updates if update not in there]
    if missing:
        held = ", ".join(map(str, there)) or "none"
        raise ModelError(f"{run}: holds no checkpoint of update {missing[0]}; there are {held}")
    place = checkpoints_folder(run) / name
    if place.exists() and not is_named and read_state(place).get("average_of") != list(updates):
        raise RequestError(f"{place}: is there, the average of other updates; --output gives this one another name")
    newest = read_state(checkpoints_folder(run) / f"update-{updates[-1]}")
    state: dict[str, Any] = {key: newest[key] for key in ("update", "tokenizers", "bitext") if key in newest}
    return save_checkpoint(run, name, average(run, updates), {}, {**state, "average_of": list(updates)})


def tokenizer_fingerprints(tokenizers: Tokenizers) -> list[str]:
    return [tokenizers.src.fingerprint, tokenizers.trg.fingerprint]


def load_model(folder: Path, *, device: str | torch.device = "cpu") -> LoadedModel:
    """The best model of a run folder, or the model of one of its checkpoint folders, ready to search.

    Raises: ModelError when the folder holds no model, a damaged one, or a tokenizer that is not the model's.
    """
    run, name = _locate(folder)
    recipe = load_recipe(run / RECIPE_FILE, parse_model=models.parse_config)
    tokenizers = Tokenizers.load(run / TOKENIZER_FOLDER)
    place = checkpoints_folder(run) / name
    state = read_state(place)
    if state.get("tokenizers") != tokenizer_fingerprints(tokenizers):
        raise ModelError(f"{run / TOKENIZER_FOLDER}: not the tokenizer that this model was trained with")
    sizes = tokenizers.src.vocab_size, tokenizers.trg.vocab_size
    model = saved_model(recipe.model, *sizes, read_tensors(place, WEIGHTS_FILE, state), place)
    return LoadedModel(model.to(device).eval(), tokenizers, recipe, run, name, int(state["update"]))


def saved_model(
    section: Mapping[str, Any],
    src_vocab_size: int,
    trg_vocab_size: int,
    weights: Mapping[str, Tensor],
    source: Path,
) -> models.TranslationModel:
    """The model of a recipe's section with saved weights; tied ones are one tensor again.

    Raises: ModelError when names or shapes are not the model's own.
    """
    # None are drawn that would be replaced: orthogonal matrices alone take seconds.
    with torch.device("meta"):
        model = models.build(section, src_vocab_size, trg_vocab_size, PAD_ID)
    own = unique_tensors(model)
    _check_fit(own, weights, source)
    made: dict[int, Tensor] = {}
    for name, tensor in own.items():
        loaded = weights[name].to(tensor.dtype, copy=True)  # the file may be mapped into memory
        made[id(tensor)] = nn.Parameter(loaded) if isinstance(tensor, nn.Parameter) else loaded
    for module in model.modules():
        for tensors in (module._parameters, module._buffers):
            for name, own_tensor in tensors.items():
                if id(own_tensor) in made:
                    tensors[name] = made[id(own_tensor)]  # type: ignore[assignment]
    return model


def weights_sum(folder: Path) -> str:
    """The SHA-256 sum of the weights that `load_model` would load, as recorded with them.

    Raises: ModelError when the folder holds no model.
    """
    run, name = _locate(folder)
    return str(read_state(checkpoints_folder(run) / name)["sha256"].get(WEIGHTS_FILE))


def check_run(folder: Path) -> None:
    """Raises: ModelError when it is no folder of a run."""
    if not folder.is_dir():
        raise ModelError(f"{folder}: no such folder; a model is the folder that mtkit train wrote")
    if not (folder / RECIPE_FILE).is_file():
        raise ModelError(
            f"{folder}: holds no model (no {RECIPE_FILE} in it); a model is the folder that mtkit train wrote"
        )


def _locate(folder: Path) -> tuple[Path, str]:
    """The run folder and the checkpoint name that a user's path means."""
    if (folder / STATE_FILE).is_file() and folder.resolve().parent.name == "checkpoints":
        return folder.resolve().parent.parent, folder.resolve().name
    check_run(folder)
    for name in _candidates(folder):
        if (checkpoints_folder(folder) / name / STATE_FILE).is_file():
            return folder, name
    raise ModelError(f"{folder}: holds no checkpoint yet; let mtkit train reach its first one")


def _candidates(run: Path) -> Iterator[str]:
    for pointer in ("best", "last"):
        if name := read_pointer(run, pointer):
            yield name
    yield from (f"update-{update}" for update in reversed(list_updates(run)))


def _remove(folder: Path) -> None:
    """Delete a checkpoint, if it is there; a kill in the middle leaves none that is half there."""
    old = _set_old_aside(folder)
    if old is not None:
        shutil.rmtree(old, ignore_errors=True)


def _set_old_aside(folder: Path) -> Path | None:
    """Rename a checkpoint out of the way, if it is there."""
    if not folder.exists():
        return None
    old = folder.with_name(f".{folder.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    folder.rename(old)
    return old


def clean_up(run: Path) -> None:
    """After a kill: bring back a checkpoint that was about to be replaced, delete what was half written."""
    for old in checkpoints_folder(run).glob(".*.old"):
        name = old.name[1 : -len(".old")]
        if not (old.parent / name).exists():
            old.rename(old.parent / name)
        shutil.rmtree(old, ignore_errors=True)
    for part in checkpoints_folder(run).glob(".*.part"):
        shutil.rmtree(part, ignore_errors=True)


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _write_flushed(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8", newline="\n") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())


def _flush(path: Path) -> None:
    """Have a file's content, or a folder's entries, on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
