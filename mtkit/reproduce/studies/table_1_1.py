"""Table 1-1: one fixed vector against attention, at two caps of the training length (Bahdanau et al. 2015, Table 1)."""

from __future__ import annotations

from collections.abc import Sequence

from mtkit.evaluate.bleu import BOOTSTRAP_SAMPLES
from mtkit.evaluate.charts import Bar, bar_figure
from mtkit.evaluate.length import length_groups
from mtkit.reproduce.bleu_rows import bar, by_length, measured_bleu, signature
from mtkit.reproduce.findings import Cell, Findings, Measured, Picture, Table
from mtkit.reproduce.laboratory import Laboratory
from mtkit.reproduce.study import TOY_ALL_LENGTHS, Scale, Settings, Training
from mtkit.reproduce.verdict import Sample, Verdict, beats, falls_with_length, stays_flat

TITLE = "Table 1-1: RNNencdec against RNNsearch at two caps of the training length"
SUBJECT = (
    "Two recurrent systems of equal sizes, one that hands a single vector to its decoder and one that attends, each "
    "trained twice: on the sentences up to a shorter and up to a longer cap, counted in words. All are tested on "
    "sentences of all lengths. The vocabulary is one of words, as in 2015, so that a second column can leave out the "
    "sentences with an unknown word on either side."
)

_TOY = (*TOY_ALL_LENGTHS, "text={subword: word, vocab_size: 4000, shared_vocab: false}")
_LEAST_CUT = 0.05  # of the training sentences that the shorter cap must leave out, for a claim about caps
_CAPS: dict[Scale, tuple[int, int]] = {"toy": (15, 25), "multi30k": (30, 50), "paper": (30, 50)}

# BLEU of all sentences and of those without unknown words, WMT14 En-Fr; the chapter prints the first column.
_PAPER = {
    ("RNNencdec", 0): (13.93, 24.19),
    ("RNNsearch", 0): (21.50, 31.44),
    ("RNNencdec", 1): (17.82, 26.71),
    ("RNNsearch", 1): (26.75, 34.16),
}


def trainings(settings: Settings) -> list[Training]:
    scale = settings.scale
    found = []
    for cap in _CAPS[scale]:
        for system in ("RNNencdec", "RNNsearch"):
            if scale == "paper":
                found.append(Training(f"{system}-{cap}", f"wmt14/{system.lower()}_{cap}.yaml"))
                continue
            own = _TOY if scale == "toy" else ("text={subword: word, vocab_size: 15000, shared_vocab: false}",)
            caps = (f"data.filters.max_length={cap}",)
            found.append(Training(f"{system}-{cap}", f"{scale}/{system.lower()}.yaml", own + caps))
    return found


def report(laboratory: Laboratory) -> Findings:
    models = trainings(laboratory.settings)
    set_name = laboratory.test_set(models[0])
    samples = {training.label: laboratory.sample(training, set_name) for training in models}
    sources = laboratory.translate([(models[0], 1)], set_name).sources
    short, long = _CAPS[laboratory.settings.scale]
    enc_short, search_short, enc_long, search_long = samples.values()
    groups = length_groups(sources)
    cut = _share_longer(laboratory.train_sources(models[0]), short)
    verdicts = [
        _unless_idle(
            cut,
            short,
            beats(
                "CH-30", "RNNsearch beats RNNencdec at both caps", (search_short, enc_short), (search_long, enc_long)
            ),
        ),
        _unless_idle(cut, short, beats("CH-31", f"RNNsearch-{short} beats RNNencdec-{long}", (search_short, enc_long))),
        falls_with_length("CH-18", "BLEU of a fixed vector falls with the length of the source", enc_long, groups),
        stays_flat("CH-32", "RNNsearch stays flat where RNNencdec falls", search_long, enc_long, groups),
    ]
    bleu = {label: measured_bleu(sample) for label, sample in samples.items()}
    lengths, curve = by_length(list(samples.values()), sources)
    return Findings(
        verdicts,
        [_bleu_table(laboratory, models, samples, bleu, set_name), lengths],
        [_bars(bleu), curve],
        [
            "The chapter's and the paper's figures are tokenised BLEU on newstest2014, English to French, after "
            "training on 348 million words; ours are sacreBLEU on another corpus. Only the order of the systems can be "
            "compared, never a number with a number.",
            "The caps of the toy scale are scaled down, as its sentences are: the test set has up to 39 words."
            if laboratory.settings.scale == "toy"
            else "The caps count words and punctuation marks, as the papers do.",
        ],
    )


def _share_longer(sources: Sequence[str], cap: int) -> float:
    """The share of sentences with more words than the cap."""
    return sum(len(line.split()) > cap for line in sources) / len(sources)


def _unless_idle(cut: float, cap: int, verdict: Verdict) -> Verdict:
    """The verdict on a claim about caps, if the shorter one takes away enough of the training text to matter."""
    if cut >= _LEAST_CUT:
        return verdict
    reason = f"a cap of {cap} words leaves out {cut:.1%} of the training sentences; {_LEAST_CUT:.0%} or more are needed"
    return verdict._replace(outcome="cannot be tested at this scale", reason=f"{reason}. {verdict.reason}")


def _bleu_table(
    laboratory: Laboratory,
    models: Sequence[Training],
    samples: dict[str, Sample],
    bleu: dict[str, Measured],
    set_name: str,
) -> Table:
    rows: list[list[Cell]] = []
    for number, training in enumerate(models):
        system, cap = training.label.rsplit("-", 1)
        chapter_all, paper_known = _PAPER[(system, number // 2)]
        sample = samples[training.label]
        known = laboratory.known(training, laboratory.translate([(training, 1)], set_name))
        rows.append(
            [
                system,
                int(cap),
                chapter_all,
                chapter_all,
                paper_known,
                bleu[training.label],
                measured_bleu(sample, known) if known else None,
                len(known),
            ]
        )
    return Table(
        "bleu",
        "BLEU on all sentences and on those without unknown words",
        (
            "system",
            "cap, words",
            "chapter, all",
            "paper, all",
            "paper, no unknown",
            "ours, all",
            "ours, no unknown",
            "sentences without unknown",
        ),
        rows,
        f"Ours: mean, half of the 95% bootstrap interval ({BOOTSTRAP_SAMPLES} resamples), and the standard deviation "
        f"over the seeds where there are several. {signature(samples[models[0].label])}",
    )


def _bars(bleu: dict[str, Measured]) -> Picture:
    systems: dict[str, list[Bar | None]] = {}
    caps: list[str] = []
    for label, measured in bleu.items():
        system, cap = label.rsplit("-", 1)
        caps += [] if f"up to {cap} words" in caps else [f"up to {cap} words"]
        systems.setdefault(system, []).append(bar(measured))
    return Picture(
        "bleu",
        "BLEU at both caps",
        bar_figure(systems, caps, y_label="BLEU", x_label="training sentences"),
        "Whiskers: 95% bootstrap intervals.",
    )
