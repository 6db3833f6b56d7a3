"""Figure 1-4: quality against sentence length, with one fixed vector, with attention, with a Transformer."""

from __future__ import annotations

from mtkit.evaluate.length import length_groups
from mtkit.reproduce.bleu_rows import by_length
from mtkit.reproduce.findings import Findings
from mtkit.reproduce.laboratory import Laboratory
from mtkit.reproduce.study import TOY_ALL_LENGTHS, WMT_EN_DE, Settings, Training
from mtkit.reproduce.verdict import falls_with_length, stays_flat

TITLE = "Figure 1-4: BLEU against the length of the source"
SUBJECT = (
    "A fixed vector (RNNencdec), attention (RNNsearch, Luong global) and a Transformer, trained on one text and "
    "scored by the number of words in the source, with 95% bootstrap intervals."
)

_RECIPES = {
    "RNNencdec": "rnnencdec",
    "RNNsearch": "rnnsearch",
    "Luong global": "luong_global",
    "Transformer": "transformer",
}
_PAPER_RECIPES = {
    "RNNencdec": "rnnencdec_50",
    "RNNsearch": "rnnsearch_50",
    "Luong global": "luong_global",
    "Transformer": "transformer_base",
}


def trainings(settings: Settings) -> list[Training]:
    scale = settings.scale
    if scale == "paper":
        return [Training(label, f"wmt14/{name}.yaml", WMT_EN_DE) for label, name in _PAPER_RECIPES.items()]
    own = TOY_ALL_LENGTHS if scale == "toy" else ()
    return [Training(label, f"{scale}/{name}.yaml", own) for label, name in _RECIPES.items()]


def foresee(laboratory: Laboratory) -> list[str]:
    model = trainings(laboratory.settings)[0]
    groups = length_groups(laboratory.test_text(model, laboratory.test_set(model)).sources)
    return [f"CH-18, CH-32, CH-55 and figure 1-4: {groups.shortage}"] if groups.shortage else []


def report(laboratory: Laboratory) -> Findings:
    models = trainings(laboratory.settings)
    set_name = laboratory.test_set(models[0])
    samples = [laboratory.sample(training, set_name) for training in models]
    fixed, search, luong, transformer = samples
    sources = laboratory.test_text(models[0], set_name).sources
    groups = length_groups(sources)
    verdicts = [
        falls_with_length("CH-18", "BLEU of a fixed vector falls with the length of the source", fixed, groups),
        stays_flat("CH-32", "RNNsearch stays flat where RNNencdec falls", search, fixed, groups),
        stays_flat("CH-55", "Luong's attention keeps its BLEU where RNNencdec falls", luong, fixed, groups),
        stays_flat("figure 1-4", "the Transformer stays flat where RNNencdec falls", transformer, fixed, groups),
    ]
    table, picture = by_length(samples, sources)
    return Findings(
        verdicts,
        [table],
        [picture],
        [
            "The chapter's own numbers for this figure (about 30 BLEU up to 10 words, about 20 at 20 to 30, below 10 "
            "beyond 50) stand in no paper; Figure 2 of Bahdanau et al. (2015) has the shape. Here all is measured.",
            laboratory.reading_note(models),
        ],
    )
