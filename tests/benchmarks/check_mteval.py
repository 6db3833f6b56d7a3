"""Recomputes every row of a folder of known scores with mtkit's own functions and prints the agreement.

Usage: python tests/benchmarks/check_mteval.py FOLDER [--paired]

FOLDER holds `scores.tsv` (set, system, refs, metric, sacrebleu_signature, score, published, bleu_details) and for each
set a folder with `hyp.SYSTEM.LANG.gz` and `ref.LANG.gz` or `ref.NAME.LANG.gz`. A row agrees if score, signature and
BLEU details are equal to the digits given. `--paired` also runs the paired tests that sacreBLEU's test suite expects.
"""

from __future__ import annotations

import argparse
import csv
import sys
from pathlib import Path

from mtkit.evaluate.bleu import NamedLines, Score, ScoreSettings, paired_scores, system_scores
from mtkit.text.lines import read_lines

METRIC_NAMES = {"BLEU": "bleu", "BLEU (order 2)": "bleu", "chrF2": "chrf", "chrF2++": "chrf++", "TER": "ter"}

# sacreBLEU's own test suite, BLEU tok:none on wmt17.en-de: Moses' bootstrap script with 2000 samples, MultEval's
# approximate randomisation with 10000 trials; it asks for agreement within 0.01 as the random streams differ.
BASELINE = "LIUM-NMT.4900"
PUBLISHED_P_VALUES = {
    "KIT.4950": (0.02233, 0.0410),
    "online-B.0": (0.38100, 0.94111),
    "RWTH-nmt-ensemble.4921": (0.01167, 0.0207),
    "SYSTRAN.4847": (0.20983, 0.59914),
    "TALP-UPC.4834": (0.00000, 0.0001),
}


def settings_of(metric: str, signature: str) -> ScoreSettings:
    """The settings that a row of the table was made with."""
    fields = dict(field.split(":", 1) for field in signature.split("|"))
    smooth = fields.get("smooth", "exp")
    return ScoreSettings(
        metrics=(METRIC_NAMES[metric],),
        tokenize=fields["tok"] if metric.startswith("BLEU") else None,
        # TER's signature says lc by default, for that is Tercom's own rule.
        lowercase=metric != "TER" and fields["case"] == "lc",
        smooth_method=smooth.split("[")[0],
        smooth_value=float(smooth.split("[")[1][:-1]) if "[" in smooth else None,
        max_ngram_order=2 if metric.endswith("(order 2)") else 4,
    )


def details_of(score: Score) -> str:
    """A BLEU score's parts as the table writes them."""
    if score.bleu is None:
        return ""
    precisions = "/".join(f"{precision:.4f}" for precision in score.bleu.precisions)
    lengths = f"sys={score.bleu.hyp_length} ref={score.bleu.ref_length}"
    return f"{precisions} BP={score.bleu.brevity_penalty:.6f} {lengths}"


def named_lines(folder: Path, pattern: str) -> NamedLines:
    """The one file of the folder that fits."""
    (path,) = folder.glob(pattern)
    return NamedLines(path.name, list(read_lines(path)))


def check_scores(folder: Path) -> int:
    """Prints each row that differs, then the summary; returns how many rows differ."""
    n_rows, n_different, largest, last_key = 0, 0, 0.0, ("", "", "")
    references: list[NamedLines] = []
    with (folder / "scores.tsv").open(encoding="utf-8", newline="\n") as table:
        for row in csv.DictReader(table, delimiter="\t", quoting=csv.QUOTE_NONE):
            corpus = folder / row["set"]
            if last_key != (row["set"], row["system"], row["refs"]):
                last_key = (row["set"], row["system"], row["refs"])
                system = named_lines(corpus, f"hyp.{row['system']}.*.gz")
                n_refs = len(list(corpus.glob("ref.*.gz")))
                patterns = ["ref.*.gz"] if n_refs == 1 else [f"ref.{name}.*.gz" for name in row["refs"].split("+")]
                references = [named_lines(corpus, pattern) for pattern in patterns]
            settings = settings_of(row["metric"], row["sacrebleu_signature"])
            ((score,),) = system_scores([system], references, settings)
            n_rows += 1
            largest = max(largest, abs(score.score - float(row["score"])))
            expected = (row["metric"], row["score"], row["sacrebleu_signature"], (row["bleu_details"] or "").strip())
            got = (score.name, f"{score.score:.6f}", score.signature, details_of(score))
            if got != expected:
                n_different += 1
                print(f"DIFFERENT {' '.join(last_key)}\n  expected {expected}\n  got      {got}")
    print(f"{n_rows} rows, {n_rows - n_different} agree, {n_different} differ; largest difference {largest:.2e}")
    return n_different


def check_paired(folder: Path) -> int:
    """Prints the p-values beside the published ones; returns how many differ by more than 0.01."""
    corpus = folder / "wmt17.en-de"
    references = [named_lines(corpus, "ref.*.gz")]
    names = [BASELINE, *PUBLISHED_P_VALUES]
    systems = [named_lines(corpus, f"hyp.{name}.*.gz") for name in names]
    settings = ScoreSettings(tokenize="none")
    bootstrap = paired_scores(systems, references, settings, method="bootstrap", n_samples=2000)
    approximate = paired_scores(systems, references, settings, method="approximate")
    n_different = 0
    for index, name in enumerate(names[1:], start=1):
        for label, scores, published in zip(
            ("bootstrap", "approximate"), (bootstrap, approximate), PUBLISHED_P_VALUES[name], strict=True
        ):
            p_value = scores[index][0].p_value
            assert p_value is not None
            is_near = abs(p_value - published) < 0.01
            n_different += not is_near
            print(f"{name} {label}: p = {p_value:.5f}, published {published:.5f}{'' if is_near else '  DIFFERENT'}")
    return n_different


def main() -> int:
    """Exit status 1 if anything differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--paired", action="store_true", help="also run the paired tests")
    arguments = parser.parse_args()
    n_different = check_scores(arguments.folder)
    if arguments.paired:
        n_different += check_paired(arguments.folder)
    return 1 if n_different else 0


if __name__ == "__main__":
    sys.exit(main())
