"""From text files to translations: every backend learns to copy and to reverse digits, from scratch."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from mtkit import models
from mtkit.cli import app
from mtkit.recipe import load_recipe
from mtkit.train.experiment import train
from mtkit.train.log import read_metrics

# A backend takes the sizes that its Config knows.
SIZES: dict[str, Any] = {
    "d_model": 32,
    "d_ff": 64,
    "n_heads": 2,
    "n_layers": 2,
    "d_embedding": 32,
    "d_encoder": 96,
    "d_hidden": 96,
    "d_attention": 32,
    "d_maxout": 32,
    "dropout": 0.0,
}
N_TRAIN, N_DEV, LONGEST = 3000, 40, 5


def write(folder: Path, name: str, sources: list[str], targets: list[str]) -> None:
    for side, lines in (("a", sources), ("b", targets)):
        (folder / f"{name}.{side}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def write_recipe(folder: Path, model: dict[str, Any], **sections: dict[str, Any]) -> Path:
    keys: dict[str, Any] = {
        "name": "toy",
        "data": {"src": "a", "trg": "b", "train": "train", "dev": "dev"},
        "text": {"subword": "word", "vocab_size": 20},
        "model": model,
        "train": {
            "updates": 600,
            "batch_tokens": 400,
            "lr": 5e-3,
            "schedule": "cosine",
            "warmup_updates": 30,
            "label_smoothing": 0.0,
            "validate_every": 1000,
            "save_every": 1000,
            "precision": "fp32",
        },
    }
    for section, changes in sections.items():
        keys[section] = {**keys[section], **changes}
    (folder / "toy.yaml").write_text(json.dumps(keys), encoding="utf-8")
    return folder / "toy.yaml"


def copied(digits: str) -> str:
    return digits


def reversed_(digits: str) -> str:
    return digits[::-1]


@pytest.mark.parametrize("task", [copied, reversed_], ids=["copy", "reverse"])
@pytest.mark.parametrize("name", models.available())
def test_digits_that_were_never_seen_are_translated(name: str, task: Callable[[str], str], tmp_path: Path) -> None:
    draw = random.Random(1)
    numbers = ["".join(draw.choices("0123456789", k=draw.randint(1, LONGEST))) for _ in range(N_TRAIN)]
    seen = set(numbers)
    unseen: list[str] = []
    while len(unseen) < N_DEV:
        number = "".join(draw.choices("0123456789", k=draw.randint(3, LONGEST)))
        unseen += [number] if number not in seen else []
    write(tmp_path, "train", [" ".join(each) for each in numbers], [" ".join(task(each)) for each in numbers])
    write(tmp_path, "dev", [" ".join(each) for each in unseen], [" ".join(task(each)) for each in unseen])
    sizes = {key: value for key, value in SIZES.items() if key in models.load(name).Config.model_fields}
    recipe = load_recipe(write_recipe(tmp_path, {"type": name, **sizes}), parse_model=models.parse_config)
    train(recipe, tmp_path / "run", device="cpu")

    output = tmp_path / "dev.out"
    arguments = ["translate", str(tmp_path / "run"), str(tmp_path / "dev.a"), "-o", str(output), "--device", "cpu"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.stderr
    found, expected = output.read_text().split("\n"), (tmp_path / "dev.b").read_text().split("\n")
    assert len(found) == len(expected)
    right = sum(own == other for own, other in zip(found, expected, strict=True))
    assert right >= 0.85 * len(expected), f"{right} of {len(expected)}"
    scored = CliRunner().invoke(app, ["bleu", str(output), "--ref", str(tmp_path / "dev.b"), "--format", "json"])
    assert json.loads(scored.stdout)[0]["score"] > 85


def test_dev_bleu_in_training_is_that_of_translate_and_bleu(tmp_path: Path) -> None:
    """On subwords, punctuation and capitals: pieces, ids or end symbols in the score would show."""
    draw = random.Random(2)
    words = ["Katze", "Hund", "sieht", "Größe", "25.", "(die)", "laufen", "nie", "Über", "und"]

    def sentences(count: int) -> list[str]:
        return [" ".join([*draw.choices(words, k=draw.randint(4, 6)), draw.choice(".!?")]) for _ in range(count)]

    for name, count in (("train", 1500), ("dev", 30)):
        lines = sentences(count)
        write(tmp_path, name, lines, lines)
    sizes = {key: value for key, value in SIZES.items() if key in models.load("transformer").Config.model_fields}
    file = write_recipe(
        tmp_path,
        {"type": "transformer", **sizes},
        text={"subword": "bpe", "vocab_size": 60},
        train={"updates": 250, "batch_tokens": 600},
    )
    train(load_recipe(file, parse_model=models.parse_config), tmp_path / "run", device="cpu")
    reported = [entry["dev_bleu"] for entry in read_metrics(tmp_path / "run") if "dev_bleu" in entry]
    assert len(reported) == 1
    assert reported[0] > 5, "a model that has learned nothing would show nothing"

    mtkit = [sys.executable, "-m", "mtkit"]
    with (tmp_path / "dev.a").open("rb") as source:
        translated = subprocess.run(
            [*mtkit, "translate", tmp_path / "run", "--greedy", "--device", "cpu"],
            stdin=source,
            capture_output=True,
            check=True,
        )
    assert translated.stdout.count(b"\n") == 30
    scored = subprocess.run(
        [*mtkit, "bleu", "-", "--ref", tmp_path / "dev.b", "--format", "json"],
        input=translated.stdout,
        capture_output=True,
        check=True,
    )
    assert json.loads(scored.stdout)[0]["score"] == pytest.approx(reported[0], abs=0.01)
