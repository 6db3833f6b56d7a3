"""One thread a process, no cache or setting of the user's, and run folders of models that have learned nothing."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from mtkit import models
from mtkit.checkpoint import save_checkpoint, tokenizer_fingerprints, unique_tensors
from mtkit.recipe import dump_recipe, load_recipe
from mtkit.text.tokenizer import PAD_ID, Tokenizers, learn

torch.set_num_threads(1)

# What a user may have set: it would reach the processes that tests start, too.
for name in (
    *("COLUMNS", "LINES", "TERMINAL_WIDTH", "NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE", "PY_COLORS", "GITHUB_ACTIONS"),
    *("TTY_COMPATIBLE", "TTY_INTERACTIVE", "JUPYTER_COLUMNS", "SACREBLEU_SEED", "MATPLOTLIBRC", "MPLBACKEND"),
):
    os.environ.pop(name, None)
if "PYTEST_XDIST_WORKER" not in os.environ:  # workers get it from the process that starts them
    _matplotlib = tempfile.TemporaryDirectory()  # its settings, and the list of fonts that it makes
    os.environ["MPLCONFIGDIR"] = _matplotlib.name

# Examples are the same each time; a slow machine is no fault.
settings.register_profile("mtkit", deadline=None, derandomize=True, database=None)
settings.load_profile("mtkit")


@pytest.fixture(scope="session", autouse=True)
def private_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Stores of token ids go to a folder of this session, also in the processes that a test starts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MTKIT_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("OMP_NUM_THREADS", "1")
        yield


WORDS = ["the dog sees a man", "a man sees the dog", "the man"]


def _make_run(folder: Path, backend: str, text: list[str] = WORDS) -> Path:
    """A run folder with three checkpoints of untrained models."""
    run = folder / backend
    run.mkdir()
    keys = {
        "name": backend,
        "data": {"src": "a", "trg": "b", "train": "train", "dev": "dev"},
        "text": {"subword": "word", "vocab_size": 10},
        "model": {"type": backend, "preset": "tiny"},
        "train": {"updates": 1},
    }
    (folder / f"{backend}.yaml").write_text(json.dumps(keys), encoding="utf-8")
    recipe = load_recipe(folder / f"{backend}.yaml", parse_model=models.parse_config)
    (run / "recipe.yaml").write_text(dump_recipe(recipe), encoding="utf-8")
    joint = learn(text, kind="word", vocab_size=10)
    tokenizers = Tokenizers(joint, joint, True)
    tokenizers.save(run / "tokenizer")
    for update in (10, 20, 30):
        torch.manual_seed(update)
        model = models.build(recipe.model, joint.vocab_size, joint.vocab_size, PAD_ID)
        state = {"update": update, "tokenizers": tokenizer_fingerprints(tokenizers), "bitext": "x"}
        save_checkpoint(run, f"update-{update}", unique_tensors(model), {}, state)
    (run / "best").write_text("update-30\n", encoding="utf-8")
    return run


@pytest.fixture(scope="session")
def make_run() -> Callable[..., Path]:
    """make_run(folder, backend): the run folder/backend, with the updates 10, 20 and 30."""
    return _make_run
