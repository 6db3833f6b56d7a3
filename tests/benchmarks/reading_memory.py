"""How much memory reading a large bitext for training takes: tokenising, filtering, storing, planning an epoch.

    reading_memory.py [--pairs 1000000]

Makes a bitext of so many pairs with the embedded grammar's words, reads it as `mtkit train` does in a fresh process,
and prints the largest resident memory of that process and the time.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

READ = """
import resource, sys, time
from pathlib import Path
from mtkit.data.batching import EpochBatches
from mtkit.data.sources import check_aligned, open_bitext
from mtkit.data.store import build_store
from mtkit.recipe import FilterSection
from mtkit.text.tokenizer import Tokenizers, learn
folder = Path(sys.argv[1])
begun = time.monotonic()
bitext = open_bitext("train", src="en", trg="de", root=folder)
check_aligned(bitext)
joint = learn((side for pair in bitext.pairs() for side in pair), kind="bpe", vocab_size=2000)
store = build_store([bitext], Tokenizers(joint, joint, True), FilterSection(), cache=folder / "cache")
batches = EpochBatches(store.src_lengths, store.trg_lengths, 4096, 1).epoch(0)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
print(f"{len(store):,} pairs, {len(batches):,} batches: peak {peak:,.0f} MiB, {time.monotonic() - begun:.0f} s")
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=1_000_000)
    options = parser.parse_args()
    from mtkit.text.grammar import generate

    sentences = [(pair.src, pair.trg) for pair in generate(split="train", pairs=20_000, max_words=30)]
    with tempfile.TemporaryDirectory() as folder:
        with (
            Path(folder, "train.en").open("w", encoding="utf-8") as src,
            Path(folder, "train.de").open("w", encoding="utf-8") as trg,
        ):
            for number in range(options.pairs):
                english, german = sentences[number % len(sentences)]
                src.write(f"{number}: {english}\n")
                trg.write(f"{number}: {german}\n")
        subprocess.run([sys.executable, "-c", READ, folder], check=True)


if __name__ == "__main__":
    main()
