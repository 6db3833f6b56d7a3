"""Table 1-1: one fixed vector against attention, at two caps of the training length (Bahdanau et al. 2015, Table 1)."""

from __future__ import annotations

from collections.abc import Sequence

from mtkit.evaluate.bleu import BOOTSTRAP_SAMPLES
from mtkit.evaluate.charts import bar_figure
from mtkit.evaluate.length import length_groups
from mtkit.reproduce.bleu_rows import bar, by_length, measured_bleu, signature
from mtkit.reproduce.findings import Cell, Findings, Measured, Picture, Table
from mtkit.reproduce.laboratory import Laboratory, Search
from mtkit.reproduce.study import TOY_ALL_LENGTHS, Scale, Settings, Training
from mtkit.reproduce.verdict import UNTESTABLE, Sample, Verdict, beats, falls_with_length, stays_flat
from mtkit.text.words import split_words

TITLE = "Table 1-1: RNNencdec against RNNsearch at two caps of the training length"
SUBJECT = (
    "Two recurrent systems of equal sizes, one that hands a single vector to its decoder and one that attends, each "
    "trained twice: on the sentences up to a shorter and up to a longer cap. All are tested on the whole test set, "
    "whatever the length. The vocabulary is one of words, as in 2015, so that a second column can leave out the "
    "sentences with an unknown word on either side."
)

_TOY = (*TOY_ALL_LENGTHS, "text={subword: word, vocab_size: 4000, shared_vocab: false}")
_LEAST_CUT = 0.05  # of the training sentences that the shorter cap must leave out, for a claim about caps
_CAPS: dict[Scale, tuple[int, int]] = {"toy": (15, 25), "multi30k": (30, 50), "paper": (30, 50)}
_SYSTEMS = ("RNNencdec", "RNNsearch")

# Table 1: the model may write <unk> where all sentences are scored; where those with an unknown word are left out it
# may not.
_ALL, _KNOWN = Search(unknown="keep"), Search(unknown="forbid")

# BLEU of all sentences and of those without unknown words, WMT14 En-Fr, in the order of the trainings: the caps are 30
# and 50. The chapter prints the first column.
_PAPER = ((13.93, 24.19), (21.50, 31.44), (17.82, 26.71), (26.75, 34.16))
_PAPER_CAPS = (30, 50)


def trainings(settings: Settings) -> list[Training]:
    scale = settings.scale
    found = []
    for cap in _CAPS[scale]:
        for system in _SYSTEMS:
            if scale == "paper":
                found.append(Training(f"{system}-{cap}", f"wmt14/{system.lower()}_{cap}.yaml"))
                continue
            own = _TOY if scale == "toy" else ("text={subword: word, vocab_size: 5000, shared_vocab: false}",)
            caps = (f"data.filters.max_length={cap}",)
            found.append(Training(f"{system}-{cap}", f"{scale}/{system.lower()}.yaml", own + caps))
    return found


def foresee(laboratory: Laboratory) -> list[str]:
    model = trainings(laboratory.settings)[0]
    cap = _cap(laboratory, model)
    idle = _idle_cap(_share_longer(laboratory.train_pairs(model), cap), cap)
    groups = length_groups(laboratory.test_text(model, laboratory.test_set(model)).sources)
    return [
        *([f"CH-30, CH-31: {idle}"] if idle else []),
        *([f"CH-18, CH-32: {groups.shortage}"] if groups.shortage else []),
    ]


def report(laboratory: Laboratory) -> Findings:
    models = trainings(laboratory.settings)
    set_name = laboratory.test_set(models[0])
    caps = [_cap(laboratory, training) for training in models]
    short, long = caps[0], caps[-1]
    samples = [
        laboratory.sample(training, set_name, _ALL)._replace(label=f"{system}-{cap}")
        for training, system, cap in zip(models, 2 * _SYSTEMS, caps, strict=True)
    ]
    sources = laboratory.test_text(models[0], set_name).sources
    enc_short, search_short, enc_long, search_long = samples
    groups = length_groups(sources)
    cut = _share_longer(laboratory.train_pairs(models[0]), short)
    above = beats("CH-30", "RNNsearch beats RNNencdec at both caps", (search_short, enc_short), (search_long, enc_long))
    flat = stays_flat("CH-32", "RNNsearch stays flat where RNNencdec falls", search_long, enc_long, groups)
    across = beats("CH-31", f"RNNsearch-{short} beats RNNencdec-{long}", (search_short, enc_long))
    verdicts = [
        _unless_idle(cut, short, above),
        _unless_idle(cut, short, across),
        falls_with_length("CH-18", "BLEU of a fixed vector falls with the length of the source", enc_long, groups),
        flat._replace(reason=f"{flat.reason}; neither has learned from a sentence of more than {long} tokens"),
    ]
    bleu = [measured_bleu(sample) for sample in samples]
    lengths, curve = by_length(samples, sources)
    return Findings(
        verdicts,
        [_bleu_table(laboratory, models, samples, bleu, set_name), lengths],
        [_bars(bleu, caps), curve],
        [
            "The chapter's and the paper's figures are tokenised BLEU on newstest2014, English to French, after "
            f"training on 348 million words; ours are sacreBLEU on the test set {set_name}. Only the order of the "
            "systems can be compared, never a number with a number.",
            "Where all sentences are scored, for the verdicts too, a model may write <unk>, as in the paper's column "
            "All; where those with an unknown word are left out it may not, as in its column No UNK.",
            _cap_note(short, long, sources),
        ],
    )


def _cap(laboratory: Laboratory, training: Training) -> int:
    return laboratory.place(training, laboratory.seeds[0]).recipe.data.filters.max_length


def _cap_note(short: int, long: int, sources: Sequence[str]) -> str:
    """What the caps count, and how they stand to the paper's and to the test set."""
    first, second = _PAPER_CAPS
    paper = "the paper's" if (short, long) == _PAPER_CAPS else f"in the paper they are {first} and {second}"
    longest = max(len(line.split()) for line in sources)
    return (
        f"The caps are {short} and {long} tokens on either side, words and punctuation marks where the vocabulary is "
        f"one of words ({paper}); the longest source of the test set has {longest} words."
    )


def _share_longer(pairs: Sequence[tuple[str, str]], cap: int) -> float:
    """The share of sentence pairs with more words and punctuation marks than the cap on one of the sides."""
    n_longer = sum(max(len(split_words(text).split()) for text in pair) > cap for pair in pairs)
    return n_longer / len(pairs)


def _unless_idle(cut: float, cap: int, verdict: Verdict) -> Verdict:
    """The verdict on a claim about caps, if the shorter one takes away enough of the training text to matter."""
    verdict = verdict._replace(
        rule=f"{verdict.rule}; {UNTESTABLE}: fewer than {_LEAST_CUT:.0%} of the training pairs are longer than the "
        "shorter cap"
    )
    idle = _idle_cap(cut, cap)
    return verdict._replace(outcome=UNTESTABLE, reason=f"{idle}. {verdict.reason}") if idle else verdict


def _idle_cap(cut: float, cap: int) -> str:
    """Why a cap that leaves out this share of the training text shows nothing; empty if it may."""
    if cut >= _LEAST_CUT:
        return ""
    return f"a cap of {cap} tokens leaves out {cut:.1%} of the training pairs; {_LEAST_CUT:.0%} or more are needed"


def _bleu_table(
    laboratory: Laboratory,
    models: Sequence[Training],
    samples: Sequence[Sample],
    bleu: Sequence[Measured],
    set_name: str,
) -> Table:
    rows: list[list[Cell]] = []
    for training, sample, ours, (paper_all, paper_known) in zip(models, samples, bleu, _PAPER, strict=True):
        system, cap = sample.label.rsplit("-", 1)
        known = laboratory.known(training, laboratory.translate([(training, laboratory.seeds[0])], set_name, _KNOWN))
        ours_known = measured_bleu(laboratory.sample(training, set_name, _KNOWN), known) if known else None
        rows.append([system, int(cap), paper_all, paper_all, paper_known, ours, ours_known, len(known)])
    return Table(
        "bleu",
        "BLEU on all sentences and on those without unknown words",
        (
            "system",
            "cap, tokens",
            "chapter, all",
            "paper, all",
            "paper, no unknown",
            "ours, all",
            "ours, no unknown",
            "sentences without unknown",
        ),
        rows,
        f"Ours: mean, half of the 95% bootstrap interval ({BOOTSTRAP_SAMPLES} resamples), and the standard deviation "
        f"over the seeds where there are several. RNNsearch above the RNNencdec of its cap: in the paper "
        f"{_gains([paper_all for paper_all, _ in _PAPER])}, here {_gains([each.mean for each in bleu])}. "
        f"{signature(samples[0])}",
    )


def _gains(bleu: Sequence[float]) -> str:
    """How much of itself each RNNencdec gains by attention; `bleu` in the order of the trainings."""
    pairs = zip(bleu[::2], bleu[1::2], strict=True)
    return " and ".join(f"{(search - encdec) / encdec:+.0%}" if encdec else "from 0" for encdec, search in pairs)


def _bars(bleu: Sequence[Measured], caps: Sequence[int]) -> Picture:
    systems = {name: [bar(each) for each in bleu[number::2]] for number, name in enumerate(_SYSTEMS)}
    groups = [f"up to {cap} tokens" for cap in caps[::2]]
    return Picture(
        "bleu",
        "BLEU at both caps",
        bar_figure(systems, groups, y_label="BLEU", x_label="training sentences"),
        "Whiskers: 95% bootstrap intervals.",
    )
