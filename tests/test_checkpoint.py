"""A run folder: whole or not at all, nothing in it is trusted, nothing in it is pickled."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from mtkit import checkpoint, models
from mtkit.checkpoint import (
    average,
    checkpoints_folder,
    clean_up,
    copy_weights,
    list_updates,
    load_checkpoint,
    load_model,
    read_pointer,
    read_state,
    remove_updates,
    save_checkpoint,
    set_aside,
    tokenizer_fingerprints,
    unique_tensors,
    write_pointer,
)
from mtkit.errors import ModelError, RecipeError, TrainingError
from mtkit.models.transformer import Model
from mtkit.recipe import dump_recipe, load_recipe
from mtkit.text.tokenizer import PAD_ID, Tokenizers, learn

TEXT = ["a b c d e", "e d c b a", "f g h"]
SECTION = {"type": "transformer", "preset": "tiny"}


def tokenizers_of(lines: list[str]) -> Tokenizers:
    joint = learn(lines, kind="word", vocab_size=12)
    return Tokenizers(joint, joint, True)


def small_tensors(value: float) -> dict[str, Tensor]:
    return {"w": torch.full((2, 3), value), "b": torch.tensor(value)}


def save(run: Path, update: int, value: float | None = None, **state: Any) -> Path:
    tensors = small_tensors(float(update) if value is None else value)
    return save_checkpoint(run, f"update-{update}", tensors, {"m": torch.zeros(2)}, {"update": update, **state})


@pytest.fixture(scope="module")
def made_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder as training leaves it, with two checkpoints of untrained models."""
    run = tmp_path_factory.mktemp("made") / "run"
    run.mkdir()
    recipe = run.parent / "toy.yaml"
    keys = {
        "name": "toy",
        "data": {"src": "a", "trg": "b", "train": "train", "dev": "dev"},
        "text": {"subword": "word", "vocab_size": 12},
        "model": SECTION,
        "train": {"updates": 1},
    }
    recipe.write_text(json.dumps(keys), encoding="utf-8")
    loaded = load_recipe(recipe, parse_model=models.parse_config)
    (run / "recipe.yaml").write_text(dump_recipe(loaded), encoding="utf-8")
    tokenizers = tokenizers_of(TEXT)
    tokenizers.save(run / "tokenizer")
    for update in (10, 20):
        torch.manual_seed(update)
        model = models.build(SECTION, tokenizers.src.vocab_size, tokenizers.trg.vocab_size, PAD_ID)
        state = {"update": update, "tokenizers": tokenizer_fingerprints(tokenizers)}
        save_checkpoint(run, f"update-{update}", unique_tensors(model), {"random.cpu": torch.get_rng_state()}, state)
    write_pointer(run, "best", "update-10")
    write_pointer(run, "last", "update-20")
    return run


@pytest.fixture
def run(made_run: Path, tmp_path: Path) -> Path:
    """A copy of `made_run`, to be damaged."""
    return shutil.copytree(made_run, tmp_path / "run")


def weights_file(run: Path, update: int) -> Path:
    return checkpoints_folder(run) / f"update-{update}" / "model.safetensors"


# ---- saving -------------------------------------------------------------------------------------------------------


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    tensors = {
        "single": torch.randn(3, 4),
        "columns": torch.randn(4, 3).T,  # not contiguous
        "scalar": torch.tensor(3.0),
        "bytes": torch.get_rng_state(),
        "half": torch.randn(2).bfloat16(),
    }
    state = {"update": 7, "position": {"epoch": 1, "seconds": 0.1 + 0.2}}
    found = load_checkpoint(save_checkpoint(tmp_path, "update-7", tensors, tensors, state))
    for part in (found.weights, found.trainer):
        assert part.keys() == tensors.keys()
        assert all(torch.equal(part[name], tensors[name]) for name in tensors)
        assert all(part[name].dtype == tensors[name].dtype for name in tensors)
    assert found.state["position"] == {"epoch": 1, "seconds": 0.1 + 0.2}


@pytest.mark.parametrize("file", ["model.safetensors", "trainer.safetensors", "state.json"])
def test_a_full_disk_leaves_the_checkpoints_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str) -> None:
    save(tmp_path, 1)
    write, save_file = checkpoint._write_flushed, checkpoint.save_file

    def full(path: Path) -> None:
        if path.name == file:
            path.write_bytes(b"half")
            raise OSError(28, "No space left on device")

    def save_file_until_full(tensors: dict[str, Tensor], path: Path) -> None:
        full(path)
        save_file(tensors, path)

    def write_until_full(path: Path, text: str) -> None:
        full(path)
        write(path, text)

    monkeypatch.setattr(checkpoint, "save_file", save_file_until_full)
    monkeypatch.setattr(checkpoint, "_write_flushed", write_until_full)
    for update in (1, 2):  # over an older one of the same name, and beside it
        with pytest.raises(TrainingError, match="No space left on device.*the ones before it are intact"):
            save(tmp_path, update, value=5.0)
    assert [path.name for path in checkpoints_folder(tmp_path).iterdir()] == ["update-1"]
    assert load_checkpoint(checkpoints_folder(tmp_path) / "update-1").weights["b"].item() == 1.0


def test_a_kill_while_saving_leaves_nothing_that_looks_like_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path, 1)

    def killed(path: Path, text: str) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "_write_flushed", killed)
        with pytest.raises(KeyboardInterrupt):
            save(tmp_path, 2)
    assert list_updates(tmp_path) == [1]
    save(tmp_path, 2)
    assert load_checkpoint(checkpoints_folder(tmp_path) / "update-2").weights["b"].item() == 2.0
    assert sorted(path.name for path in checkpoints_folder(tmp_path).iterdir()) == ["update-1", "update-2"]


def test_a_checkpoint_of_the_same_name_is_replaced(tmp_path: Path) -> None:
    save(tmp_path, 1, value=1.0)
    folder = save(tmp_path, 1, value=2.0)
    assert load_checkpoint(folder).weights["b"].item() == 2.0
    assert [path.name for path in checkpoints_folder(tmp_path).iterdir()] == ["update-1"]


def test_updates_are_listed_by_number(tmp_path: Path) -> None:
    for update in (1000, 9, 20):
        save(tmp_path, update)
    save_checkpoint(tmp_path, "average-2", small_tensors(0.0), {}, {"update": 20})
    (checkpoints_folder(tmp_path) / "update-x").mkdir()
    (checkpoints_folder(tmp_path) / ".update-30.part").mkdir()
    assert list_updates(tmp_path) == [9, 20, 1000]
    assert list_updates(tmp_path / "nosuch") == []


def test_the_named_stay_and_what_is_no_update(tmp_path: Path) -> None:
    for update in range(1, 7):
        save(tmp_path, update)
    save_checkpoint(tmp_path, "average-1-2", small_tensors(0.0), {}, {"update": 2})
    remove_updates(tmp_path, except_for=["update-3", "update-6", "", "update-9"])
    assert sorted(path.name for path in checkpoints_folder(tmp_path).iterdir()) == [
        "average-1-2",
        "update-3",
        "update-6",
    ]


def test_a_damaged_checkpoint_is_put_aside_under_a_name_that_is_no_updates(tmp_path: Path) -> None:
    save(tmp_path, 1)
    for value in (2.0, 3.0):  # twice: the second takes the place of the first
        aside = set_aside(save(tmp_path, 2, value=value))
    assert aside.name == "update-2.damaged"
    assert load_checkpoint(aside).weights["b"].item() == 3.0
    assert list_updates(tmp_path) == [1]


def test_pointers_name_a_checkpoint(tmp_path: Path) -> None:
    assert read_pointer(tmp_path, "best") is None
    write_pointer(tmp_path, "best", "update-4")
    write_pointer(tmp_path, "best", "average-5")
    assert read_pointer(tmp_path, "best") == "average-5"
    assert [path.name for path in tmp_path.iterdir()] == ["best"]
    for foreign in ("../../etc", "/etc", "", "update 4"):
        (tmp_path / "best").write_text(foreign, encoding="utf-8")
        assert read_pointer(tmp_path, "best") is None
    (tmp_path / "best").write_bytes(b"\xff")
    assert read_pointer(tmp_path, "best") is None


def test_a_pointer_that_cannot_be_written_is_an_error_with_a_message(tmp_path: Path) -> None:
    (tmp_path / "best").mkdir()
    with pytest.raises(TrainingError, match=r"best: cannot be written \(.*\); the checkpoints are intact"):
        write_pointer(tmp_path, "best", "update-1")


def test_an_average_is_the_mean(tmp_path: Path) -> None:
    for update, value in ((1, 1.0), (2, 2.0), (3, 6.0)):
        save(tmp_path, update, value=value)
    found = average(tmp_path, [1, 2, 3])
    assert found["w"].tolist() == [[3.0] * 3] * 2
    assert found["b"].item() == 3.0
    assert average(tmp_path, [2])["b"].item() == 2.0


# ---- damaged and foreign files ------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", ["model.safetensors", "trainer.safetensors"])
@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "missing"])
def test_a_damaged_file_is_named(tmp_path: Path, file: str, damage: str) -> None:
    folder = save(tmp_path, 1)
    path = folder / file
    content = bytearray(path.read_bytes())
    if damage == "cut":
        path.write_bytes(content[:-1])
    elif damage == "flipped":
        content[-2] ^= 1  # one bit of one weight: safetensors itself would not see it
        path.write_bytes(content)
    elif damage == "empty":
        path.write_bytes(b"")
    else:
        path.unlink()
    with pytest.raises(ModelError) as caught:
        load_checkpoint(folder)
    assert str(caught.value).startswith(f"{path}: ")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"format": 2, "update": 1, "sha256": {}}',
        '{"format": 1, "sha256": {}}',
        '{"format": 1, "update": "1", "sha256": {}}',
        '{"format": 1, "update": 1}',
        '{"format": 1, "update": 1, "sha256": []}',
    ],
)
def test_a_state_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    folder = save(tmp_path, 1)
    (folder / "state.json").write_text(text, encoding="utf-8")
    with pytest.raises(ModelError, match="update-1: (not a whole checkpoint|a checkpoint of another format)"):
        load_checkpoint(folder)


class Trap:
    """Runs code when it is unpickled."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return (pytest.fail, ("foreign code was run",))


@pytest.mark.parametrize("file", ["model.safetensors", "trainer.safetensors"])
@pytest.mark.parametrize("with_sum", [True, False])
def test_a_pickle_is_never_loaded(tmp_path: Path, file: str, with_sum: bool) -> None:
    folder = save(tmp_path, 1)
    (folder / file).write_bytes(pickle.dumps(Trap()))
    if with_sum:  # whoever exchanges a file can also exchange its sum
        state = read_state(folder)
        state["sha256"][file] = checkpoint._sha256(folder / file)
        (folder / "state.json").write_text(json.dumps(state), encoding="utf-8")
    with pytest.raises(ModelError, match=f"{file}: "):
        load_checkpoint(folder)


def test_the_file_of_torch_save_is_not_loaded_either(tmp_path: Path) -> None:
    folder = save(tmp_path, 1)
    torch.save({"w": Trap()}, folder / "model.safetensors")
    state = read_state(folder)
    state["sha256"]["model.safetensors"] = checkpoint._sha256(folder / "model.safetensors")
    (folder / "state.json").write_text(json.dumps(state), encoding="utf-8")
    with pytest.raises(ModelError, match="model.safetensors: cannot be read as safetensors"):
        load_checkpoint(folder)


# ---- weights and models -------------------------------------------------------------------------------------------


def test_tied_weights_are_saved_once_and_tied_again(tmp_path: Path) -> None:
    model = models.build(SECTION, 12, 12, PAD_ID)
    tensors = unique_tensors(model)
    assert sum(tensor.shape == (12, 16) for tensor in tensors.values()) == 1
    assert not [name for name in tensors if "positions" in name], "what can be computed is not saved"
    folder = save_checkpoint(tmp_path, "update-1", tensors, {"m": torch.zeros(1)}, {"update": 1})

    other = models.build(SECTION, 12, 12, PAD_ID)
    copy_weights(other, load_checkpoint(folder).weights, folder)
    assert isinstance(other, Model)
    assert other.output.weight is other.src_embedding.weight is other.trg_embedding.weight
    src, trg_in = torch.tensor([[4, 5, 3]]), torch.tensor([[2, 6, 7]])
    nothing = torch.zeros(1, 3, dtype=torch.bool)
    assert torch.equal(model.eval()(src, nothing, trg_in), other.eval()(src, nothing, trg_in))
    other(src, nothing, trg_in).square().mean().backward()
    torch.optim.SGD(other.parameters(), lr=0.1).step()
    assert torch.equal(other.output.weight, other.src_embedding.weight), "they go on moving together"


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    model = models.build(SECTION, 12, 12, PAD_ID)
    weights = dict(unique_tensors(model))
    before = weights["encoder.0.feed_forward.inner.bias"].clone()
    lacking = {name: tensor + 1 for name, tensor in weights.items() if not name.startswith("trg_embedding")}
    with pytest.raises(ModelError, match=r"missing: \['trg_embedding.weight'\], unexpected: \['foreign'\]"):
        copy_weights(model, {**lacking, "foreign": torch.zeros(1)}, tmp_path)
    wider = {**weights, "trg_embedding.weight": torch.zeros(13, 16)}
    with pytest.raises(ModelError, match=r"trg_embedding.weight has shape \[13, 16\], the recipe's model \[12, 16\]"):
        copy_weights(model, {name: tensor + 1 for name, tensor in wider.items()}, tmp_path)
    assert torch.equal(unique_tensors(model)["encoder.0.feed_forward.inner.bias"], before), "nothing was copied"


def test_the_best_model_of_a_run_is_loaded(run: Path) -> None:
    found = load_model(run)
    assert (found.update, found.folder, found.recipe.name) == (10, run, "toy")
    assert not found.model.training
    torch.manual_seed(10)
    expected = models.build(SECTION, found.tokenizers.src.vocab_size, found.tokenizers.trg.vocab_size, PAD_ID)
    for own, other in zip(found.model.parameters(), expected.parameters(), strict=True):
        assert torch.equal(own, other)


def test_a_checkpoint_can_be_named_itself(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_model(checkpoints_folder(run) / "update-20").update == 20
    monkeypatch.chdir(checkpoints_folder(run) / "update-20")
    assert load_model(Path(".")).update == 20


def test_without_pointers_the_newest_is_taken(run: Path) -> None:
    (run / "best").write_text("update-99\n", encoding="utf-8")
    assert load_model(run).update == 20, "a pointer to nothing is passed over"
    (run / "best").unlink()
    (run / "last").unlink()
    assert load_model(run).update == 20


def test_a_run_may_be_moved(run: Path, tmp_path: Path) -> None:
    moved = shutil.move(run, tmp_path / "dir ü, x")
    assert load_model(Path(moved)).update == 10


def test_a_damaged_model_is_named_and_not_replaced_by_another(run: Path) -> None:
    weights_file(run, 10).write_bytes(weights_file(run, 10).read_bytes()[:-8])
    with pytest.raises(ModelError, match=r"update-10/model.safetensors: damaged"):
        load_model(run)
    assert load_model(checkpoints_folder(run) / "update-20").update == 20


def test_another_tokenizer_of_the_same_size_is_refused(run: Path) -> None:
    own, other = Tokenizers.load(run / "tokenizer"), tokenizers_of([line.upper() for line in TEXT])
    assert own.src.vocab_size == other.src.vocab_size
    other.save(run / "tokenizer")
    with pytest.raises(ModelError, match="tokenizer: not the tokenizer that this model was trained with"):
        load_model(run)


def test_folders_that_hold_no_model_are_told_apart(run: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="nosuch: no such folder; a model is the folder that mtkit train wrote"):
        load_model(tmp_path / "nosuch")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelError, match=r"empty: holds no model \(no recipe.yaml in it\)"):
        load_model(tmp_path / "empty")
    shutil.rmtree(checkpoints_folder(run))
    with pytest.raises(ModelError, match="run: holds no checkpoint yet; let mtkit train reach its first one"):
        load_model(run)


def test_a_recipe_that_asks_for_what_no_backend_has_is_named(run: Path) -> None:
    recipe = (run / "recipe.yaml").read_text(encoding="utf-8")
    (run / "recipe.yaml").write_text(recipe.replace("n_heads:", "n_headz:"), encoding="utf-8")
    with pytest.raises(RecipeError, match="recipe.yaml:.*model.n_headz: unknown key; did you mean 'n_heads'"):
        load_model(run)


def test_a_kill_while_a_checkpoint_is_replaced_loses_none(tmp_path: Path) -> None:
    folder = save_checkpoint(tmp_path, "update-3", small_tensors(1.0), {}, {"update": 3})
    folder.rename(folder.with_name(".update-3.old"))  # where a kill came before the new one took its place
    folder.with_name(".update-3.part").mkdir()
    clean_up(tmp_path)
    assert [entry.name for entry in checkpoints_folder(tmp_path).iterdir()] == ["update-3"]
    assert read_state(folder)["update"] == 3


def test_the_rest_of_a_replaced_checkpoint_is_deleted(tmp_path: Path) -> None:
    folder = save_checkpoint(tmp_path, "update-3", small_tensors(1.0), {}, {"update": 3})
    folder.with_name(".update-3.old").mkdir()
    clean_up(tmp_path)
    assert [entry.name for entry in checkpoints_folder(tmp_path).iterdir()] == ["update-3"]
