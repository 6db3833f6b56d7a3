"""How many target tokens a second a model trains on this machine, through `mtkit train` as users run it.

    training_speed.py [--arch small|base|rnnsearch|rnnencdec] [--src FILE --trg FILE] [--dev-src FILE --dev-trg FILE]
                      [--seconds 40] [--threads 2] [--log FILE] [--set KEY=VALUE …]

Without files the embedded bitext is used. A target token is a subword token or the closing </s>, never padding; the
rate is tokens over the time of the updates from the third on, everything that an update needs included: loading,
forward, backward, clipping, optimizer. `small` is the Transformer d 256, ff 1024, 4 heads, 3+3 layers, dropout 0.1,
label smoothing 0.1, one joint vocabulary of 8,000, about 4,096 target tokens a batch. To compare with another toolkit,
run both one after the other on an idle machine.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

PRESETS = {
    "small": ("transformer", "small"),
    "base": ("transformer", "base"),
    "rnnsearch": ("rnnsearch", "small"),
    "rnnencdec": ("rnnencdec", "small"),
}
N_WARM_UP = 2  # updates that are not counted


def recipe_of(options: argparse.Namespace) -> dict[str, object]:
    """The recipe, as JSON, which is YAML."""
    model_type, preset = PRESETS[options.arch]
    if options.src:
        train: object = {"src": os.path.abspath(options.src), "trg": os.path.abspath(options.trg)}
        dev: object = {"src": os.path.abspath(options.dev_src), "trg": os.path.abspath(options.dev_trg)}
        vocab_size = 8000
    else:
        train, dev = "synthetic:train,pairs=30000,max_words=24", "synthetic:dev,pairs=50"
        vocab_size = 1000
    return {
        "name": "training-speed",
        "data": {"src": "en", "trg": "de", "train": train, "dev": dev},
        "text": {"subword": "bpe", "vocab_size": vocab_size},
        "model": {"type": model_type, "preset": preset, "dropout": 0.1},
        "train": {
            "max_minutes": options.seconds / 60,
            "batch_tokens": 4096,
            "label_smoothing": 0.1,
            "report_every": 1,
            "validate_every": 10**6,
            "save_every": 10**6,
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", choices=PRESETS, default="small")
    for name in ("--src", "--trg", "--dev-src", "--dev-trg", "--log"):
        parser.add_argument(name)
    parser.add_argument("--seconds", type=float, default=40)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--set", action="append", default=[])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        recipe = Path(folder, "recipe.yaml")
        recipe.write_text(json.dumps(recipe_of(options)), encoding="utf-8")
        command = [sys.executable, "-m", "mtkit", "train", str(recipe), "--output", f"{folder}/run"]
        command += [part for assignment in options.set for part in ("--set", assignment)]
        threads = {"OMP_NUM_THREADS": str(options.threads), "MKL_NUM_THREADS": str(options.threads)}
        done = subprocess.run(command, env={**os.environ, **threads}, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
        if done.returncode:
            sys.exit(done.stderr.decode(errors="replace"))
        lines = Path(folder, "run", "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    counted = [entry for entry in map(json.loads, lines) if "trg_tokens" in entry][N_WARM_UP:]
    tokens = sum(entry["trg_tokens"] for entry in counted)
    seconds = sum(entry["trg_tokens"] / entry["trg_tokens_per_second"] for entry in counted)
    result = {
        "arch": options.arch,
        "tok_s": round(tokens / seconds, 1),
        "tok_per_step": round(tokens / len(counted)),
        "steps": len(counted),
    }
    text = json.dumps(result)
    if options.log:
        Path(options.log).write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
