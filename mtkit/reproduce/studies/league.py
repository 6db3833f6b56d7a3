"""The league: every system on one corpus, with as many parameters or as much time (chapter, table 1-4)."""

from __future__ import annotations

from mtkit.evaluate.charts import Point, line_figure
from mtkit.models import load
from mtkit.reproduce.bleu_rows import measured_bleu, signature
from mtkit.reproduce.findings import Cell, Findings, Measured, Picture, Table
from mtkit.reproduce.laboratory import Laboratory
from mtkit.reproduce.study import Settings, Training
from mtkit.reproduce.verdict import Sample, beats
from mtkit.train.log import dev_curve

TITLE = "League: every system from Seq2Seq to the Transformer on one corpus"
SUBJECT = (
    "One bitext, one vocabulary, one search, one metric. With --match params all widths of a system are scaled "
    "together until it has as many parameters as the others; with --match time each trains for the same minutes at a "
    "rate that needs no end to be set."
)

_SYSTEMS = {
    "Seq2Seq": "seq2seq",
    "RNNencdec": "rnnencdec",
    "RNNsearch": "rnnsearch",
    "Luong global": "luong_global",
    "Luong local-p": "luong_local_p",
    "ByteNet": "bytenet",
    "ConvS2S": "convs2s",
    "Transformer": "transformer",
}
_PUBLISHED = {**_SYSTEMS, "RNNencdec": "rnnencdec_50", "RNNsearch": "rnnsearch_50", "Transformer": "transformer_base"}
_PARAMETERS = {"toy": 2_400_000, "multi30k": 8_000_000}
_MINUTES = {"toy": 3, "multi30k": 20}

# BLEU of a single model on newstest2014, English to German: Luong et al. 2015 (Table 1), Kalchbrenner et al. 2016 and
# Gehring et al. 2017 as Gehring et al. and Vaswani et al. quote them, Vaswani et al. 2017 (base). The rest is En-Fr.
_PAPER = {"Luong global": 18.1, "Luong local-p": 19.0, "ByteNet": 23.75, "ConvS2S": 25.16, "Transformer": 27.3}
_PAPER_FRENCH = {"Seq2Seq": 30.59, "RNNencdec": 17.82, "RNNsearch": 26.75, "ConvS2S": 40.51, "Transformer": 38.1}


def trainings(settings: Settings) -> list[Training]:
    if settings.scale == "paper":
        return [Training(label, f"wmt14/{name}.yaml") for label, name in _PUBLISHED.items()]
    found = []
    for label, name in _SYSTEMS.items():
        if settings.match == "params":
            found.append(Training(label, f"{settings.scale}/{name}.yaml", n_parameters=_PARAMETERS[settings.scale]))
        else:
            minutes = f"train.max_minutes={_MINUTES[settings.scale]}"
            own = ("train.updates=null", "train.schedule=inverse_sqrt", minutes)
            found.append(Training(label, f"{settings.scale}/{name}.yaml", own))
    return found


def report(laboratory: Laboratory) -> Findings:
    contestants = trainings(laboratory.settings)
    set_name = laboratory.test_set(contestants[0])
    samples = {each.label: laboratory.sample(each, set_name) for each in contestants}
    attention = (samples["RNNsearch"], samples["RNNencdec"])
    verdicts = [
        beats("CH-125", "attention beats the fixed vector: RNNsearch above RNNencdec", attention),
        beats(
            "CH-125",
            "attention beats the fixed vector: Luong global above Seq2Seq",
            _pair(samples, "Luong global", "Seq2Seq"),
        ),
        beats("CH-125", "the Transformer beats recurrent attention", _pair(samples, "Transformer", "RNNsearch")),
        beats("CH-125", "the Transformer beats convolution", _pair(samples, "Transformer", "ConvS2S")),
        beats(
            "CH-125",
            "convolution with attention beats recurrence with attention",
            _pair(samples, "ConvS2S", "RNNsearch"),
        ),
    ]
    rows: list[list[Cell]] = []
    curves = {}
    for training in contestants:
        facts = [laboratory.facts(training, seed) for seed in laboratory.seeds]
        place = laboratory.place(training, laboratory.seeds[0])
        paper = load(place.recipe.model["type"]).PAPER
        speed = tuple(each.trg_tokens_per_second for each in facts if each.trg_tokens_per_second is not None)
        rows.append(
            [
                training.label,
                str(paper.year),
                _PAPER.get(training.label),
                _PAPER_FRENCH.get(training.label),
                facts[0].parameters,
                Measured(tuple(each.minutes for each in facts), None, 1),
                Measured(speed, None, 0) if speed else None,
                laboratory.dev_ppl(training),
                measured_bleu(samples[training.label]),
            ]
        )
        curves[training.label] = [Point(*point) for point in dev_curve(place.run)]
    header = (
        *("system", "year", "papers, En-De", "papers, En-Fr", "parameters", "minutes", "target tokens/s"),
        *("dev perplexity", "BLEU"),
    )
    note = (
        "The papers' figures are tokenised BLEU on newstest2014 of systems of other sizes, data and years, each after "
        f"its own tuning: only the order can be compared. {signature(attention[0])}"
    )
    figure = line_figure(
        {label: points for label, points in curves.items() if points},
        x_label="training time (minutes)",
        y_label="dev BLEU (greedy)",
    )
    return Findings(
        verdicts,
        [Table("league", f"Test set {set_name}", header, rows, note)],
        [Picture("curves", "Dev BLEU against training time, first seed", figure)],
    )


def _pair(samples: dict[str, Sample], better: str, worse: str) -> tuple[Sample, Sample]:
    return samples[better], samples[worse]
