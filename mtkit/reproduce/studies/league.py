"""The league: every system on one corpus, with as many parameters or as much time (chapter, table 1-4)."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple, get_args

from mtkit.analyze.long_lag import FIELDS, Family, accuracy_at_distance
from mtkit.analyze.memory_span import N_SYMBOLS
from mtkit.evaluate.charts import Point, line_figure
from mtkit.models import load
from mtkit.recipe import Recipe
from mtkit.reproduce.bleu_rows import measured_bleu, signature
from mtkit.reproduce.findings import Cell, Findings, Measured, Picture, Table
from mtkit.reproduce.laboratory import Laboratory
from mtkit.reproduce.studies.luong_scores import TABLE_4
from mtkit.reproduce.study import WMT_EN_DE, Settings, Training
from mtkit.reproduce.verdict import BEATS_RULE, UNTESTABLE, Sample, Verdict, beats, gains_more
from mtkit.train.log import dev_curve

TITLE = "League: every system from Seq2Seq to the Transformer on one corpus"
SUBJECT = (
    "One bitext and one metric; but for the paper's scale also one vocabulary and one search. With --match params all "
    "widths of a system are scaled together until it has as many parameters as the others; with --match time each "
    "trains for the same minutes. Beside them a Transformer with a quarter of the parameters (where they are "
    "matched), one system of each family trained on a tenth of the bitext, and one stack of each family that recalls "
    "a symbol over a distance."
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
_WMT14 = {**_SYSTEMS, "RNNencdec": "rnnencdec_50", "RNNsearch": "rnnsearch_50", "Transformer": "transformer_base"}
_PARAMETERS = {"toy": 2_400_000, "multi30k": 4_000_000}
_MINUTES = {"toy": 3, "multi30k": 20}
_FAMILIES = ("RNNsearch", "ConvS2S", "Transformer")
_SHARE = 0.1  # of the bitext, for the trainings on little
# On toy scale three quarters of the recipes' updates, so that twelve trainings end within half an hour.
_TOY_UPDATES = {label: 750 if label in ("ByteNet", "ConvS2S", "Transformer") else 2250 for label in _SYSTEMS}
_LITTLE_UPDATES = {
    "toy": {"RNNsearch": 1125, "ConvS2S": 375, "Transformer": 375},
    "multi30k": {"RNNsearch": 1000, "ConvS2S": 1000, "Transformer": 1600},
}  # about half as many: five times the passes
_SMALL, _BIG = "Transformer, a quarter", "Transformer big"
_DISTANCES = (5, 10, 20, 50, 100)
_RECALLED = 0.5  # accuracy at which a symbol counts as recalled


class Published(NamedTuple):
    """The published system that one of ours is or imitates, and its BLEU: a single model on newstest2014."""

    system: str | None = None
    german: float | None = None  # from English
    french: float | None = None


# Sutskever et al. 2014, Bahdanau et al. 2015 and Gehring et al. 2017, each Table 1; Kalchbrenner et al. 2016 as Gehring
# et al. quote it; Vaswani et al. 2017, Table 2.
_PUBLISHED = {
    "Seq2Seq": Published("one LSTM, the source reversed, beam 12", None, 30.59),
    "RNNencdec": Published("RNNencdec-50, all sentences", None, 17.82),
    "RNNsearch": Published("RNNsearch-50, all sentences", None, 26.75),
    "ByteNet": Published("ByteNet, characters", 23.75),
    "ConvS2S": Published("ConvS2S, one for each language", 25.16, 40.51),
    "Transformer": Published("Transformer base", 27.3, 38.1),
    _BIG: Published("Transformer big", 28.4, 41.8),
}


_YEARS = {"ByteNet": 2016}  # of what its backend imitates beside the paper that it is named after


def trainings(settings: Settings) -> list[Training]:
    if settings.scale == "paper":
        systems = [Training(label, f"wmt14/{name}.yaml", WMT_EN_DE) for label, name in _WMT14.items()]
        systems.append(Training(_BIG, "wmt14/transformer_big.yaml", WMT_EN_DE))
    else:
        systems = [_matched(settings, label) for label in _SYSTEMS]
        if settings.match == "params":
            small = _PARAMETERS[settings.scale] // 4
            systems.append(_matched(settings, "Transformer")._replace(label=_SMALL, n_parameters=small))
    return [*systems, *(_on_little(settings, each) for each in systems if each.label in _FAMILIES)]


def _matched(settings: Settings, label: str) -> Training:
    """A system with as many parameters as the others, or with as many minutes."""
    training = Training(label, f"{settings.scale}/{_SYSTEMS[label]}.yaml")
    if settings.match == "time":
        return training._replace(overrides=("train.updates=null", f"train.max_minutes={_MINUTES[settings.scale]}"))
    if settings.scale == "toy":
        training = training._replace(overrides=(f"train.updates={_TOY_UPDATES[label]}",))
    return training._replace(n_parameters=_PARAMETERS[settings.scale])


def _on_little(settings: Settings, training: Training) -> Training:
    """The same system on a share of the bitext."""
    own = [f"data.share={_SHARE}", "train.patience=5"]
    if settings.scale != "paper" and settings.match == "params":
        own.append(f"train.updates={_LITTLE_UPDATES[settings.scale][training.label]}")
    if settings.scale == "toy":
        own.append("train.warmup_updates=100")
    passes = round(0.5 / _SHARE)  # as its updates, about half as many as those on all of the text
    return training._replace(label=_little(training.label), overrides=(*training.overrides, *own), passes=passes)


def _little(label: str) -> str:
    return f"{label}, {_SHARE:.0%} of the text"


def report(laboratory: Laboratory) -> Findings:
    contestants = trainings(laboratory.settings)
    set_name = laboratory.test_set(contestants[0])
    samples = {each.label: laboratory.sample(each, set_name) for each in contestants}
    recall = {
        family: {
            distance: statistics.fmean(accuracy_at_distance(family, distance, seed=seed) for seed in laboratory.seeds)
            for distance in _DISTANCES
        }
        for family in get_args(Family)
    }
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
        _size_verdict(samples),
        _recall_verdict(recall),
        *(_data_verdict(samples, other) for other in _FAMILIES if other != "Transformer"),
    ]
    rows: list[list[Cell]] = []
    curves = {}
    for training in contestants:
        facts = [laboratory.facts(training, seed) for seed in laboratory.seeds]
        place = laboratory.place(training, laboratory.seeds[0])
        paper = load(place.recipe.model["type"]).PAPER
        rows.append(
            [
                training.label,
                str(_YEARS.get(training.label, paper.year)),
                *published(training.label, place.recipe),
                facts[0].parameters,
                _over_seeds([each.minutes for each in facts], 1),
                _over_seeds([each.trg_tokens_per_second for each in facts], 0),
                laboratory.dev_ppl(training),
                measured_bleu(samples[training.label]),
            ]
        )
        if training.label in _SYSTEMS:
            curves[training.label] = [Point(*point) for point in dev_curve(place.run)]
    header = (
        *("system", "year", "published system", "papers, En-De", "papers, En-Fr", "parameters", "minutes"),
        *("target tokens/s", "dev perplexity", "BLEU"),
    )
    note = (
        "The papers' figures are tokenised BLEU on newstest2014 of the published system named before them, each after "
        "its own training and tuning: only the order can be compared. Those of English to French are of systems with "
        "settings of their own: ConvS2S has other sizes (39.41 with those for German), Transformer big another "
        "dropout; its 41.8 is the later version's, the proceedings' abstract and the chapter have 41.0. "
        f"{signature(attention[0])}"
    )
    figure = line_figure(
        {label: points for label, points in curves.items() if points},
        x_label="training time (minutes)",
        y_label="dev BLEU (greedy)",
    )
    return Findings(
        verdicts,
        [Table("league", f"Test set {set_name}", header, rows, note), _recall_table(recall)],
        [Picture("curves", "Dev BLEU against training time, first seed", figure)],
        [
            matched_text(laboratory, contestants),
            little_note(laboratory, contestants),
            laboratory.reading_note(contestants),
        ],
    )


def published(label: str, recipe: Recipe) -> Published:
    """What a contestant imitates; of Luong's systems the row of the paper's Table 4 that its recipe has."""
    kind, score = str(recipe.model.get("attention")), str(recipe.model.get("score"))
    if not label.startswith("Luong") or (kind, score) not in TABLE_4:
        return _PUBLISHED.get(label, Published())
    row, name = TABLE_4[kind, score], f"{kind.replace('_', '-')} {score}"
    if recipe.search.unknown == "replace":
        return Published(f"{name}, <unk> replaced", row.replaced)
    return Published(f"{name}, before <unk> is replaced", row.bleu)


def matched_text(laboratory: Laboratory, contestants: Sequence[Training]) -> str:
    """What the contestants of this report have in common beside the text."""
    settings = laboratory.settings
    if settings.scale == "paper":
        return "Each system has the size and the training of its own recipe: nothing is matched but the text."
    matched, unlike = [], ["passes over the text"]
    if settings.match == "params":
        matched.append(f"parameters, about {_PARAMETERS[settings.scale]:,} each")
    else:
        unlike.append("sizes")
    sections = [laboratory.place(each, laboratory.seeds[0]).recipe.train for each in contestants]
    for end, name in (("updates", "updates"), ("max_minutes", "minutes of training")):
        numbers = {getattr(section, end) if section.ends_by == end else None for section in sections}
        if len(numbers) == 1 and None not in numbers:
            matched.append(f"at most {numbers.pop():,g} {name} each")
        else:
            unlike.append(name)
    return (
        f"Matched here: {' and '.join(matched) or 'nothing but the text'}. Not matched: {', '.join(unlike)}; the table "
        "of trainings has them."
    )


def little_note(laboratory: Laboratory, contestants: Sequence[Training]) -> str:
    """How long the systems have learned from little text, beside those that had all of it."""
    labels = {each.label: each for each in contestants}
    took = []
    for family in _FAMILIES:
        little, whole = (laboratory.facts(labels[label], laboratory.seeds[0]) for label in (_little(family), family))
        if little.updates and whole.updates and little.passes and whole.passes:
            ratios = little.updates / whole.updates, little.passes / whole.passes
            took.append(f"{family} {ratios[0]:.2g} times the updates and {ratios[1]:.2g} times the passes")
    beside = f": with {_SHARE:.0%} of it {', '.join(took)} of its training on all" if took else ""
    return f"What CH-128 calls a gain from data is one from data and from the length of the training together{beside}."


def _over_seeds(values: Sequence[float | None], decimals: int) -> Measured | None:
    """A figure of each seed; None where a log is not there any more."""
    known = tuple(value for value in values if value is not None)
    return Measured(known, None, decimals) if known else None


def _size_verdict(samples: dict[str, Sample]) -> Verdict:
    """CH-119, with the published sizes where there are, else with a quarter of the parameters."""
    statement = "a larger Transformer is better"
    if _BIG not in samples and _SMALL not in samples:
        reason = "with --match time each system has its recipe's size; --match params trains another beside it"
        return Verdict("CH-119", statement, UNTESTABLE, reason, BEATS_RULE)
    larger, smaller = (_BIG, "Transformer") if _BIG in samples else ("Transformer", _SMALL)
    return beats("CH-119", statement, _pair(samples, larger, smaller))


def _data_verdict(samples: dict[str, Sample], other: str) -> Verdict:
    """CH-128: who gains more from ten times the text?"""
    return gains_more(
        "CH-128",
        f"a Transformer needs data: from {_SHARE:.0%} to all of the text it gains more than {other}",
        _pair(samples, "Transformer", _little("Transformer")),
        _pair(samples, other, _little(other)),
    )


def _recall_verdict(recall: dict[Family, dict[int, float]]) -> Verdict:
    """CH-127, one layer of recurrence, six dilated convolutions, which see as far as asked, one layer of attention."""
    spans = {
        family: max((distance for distance, accuracy in found.items() if accuracy > _RECALLED), default=0)
        for family, found in recall.items()
    }
    recurrence, convolution, attention = (spans[each] for each in ("recurrence", "dilated convolution", "attention"))
    is_reverse = convolution < recurrence or attention < convolution
    return Verdict(
        "CH-127",
        "over long distances attention is better than convolution, and convolution than recurrence",
        "shown" if attention > convolution > recurrence else "contradicted" if is_reverse else "not shown",
        "longest distance with more than half recalled: "
        + ", ".join(f"{family} {span}" for family, span in spans.items())
        + f"; the convolutions see {FIELDS['convolution']} tokens, dilated {FIELDS['dilated convolution']}, the "
        "recurrence is a GRU",
        "shown: a longer distance in this order, of those that were tried and with dilated convolutions, for others do "
        "not reach that far; contradicted: one of the two the other way round; otherwise not shown",
    )


def _recall_table(recall: dict[Family, dict[int, float]]) -> Table:
    rows: list[list[Cell]] = [
        [distance, *(100 * found[distance] for found in recall.values())] for distance in _DISTANCES
    ]
    note = (
        f"Percent of 512 new sequences; one of {N_SYMBOLS} symbols, then noise. 64 units, 400 updates with Adam. "
        f"One layer of GRU; six gated convolutions that see {FIELDS['convolution']} tokens, dilated "
        f"{FIELDS['dilated convolution']}; one layer of self-attention."
    )
    return Table("recall", "A symbol recalled over a distance", ("distance", *recall), rows, note, 1)


def _pair(samples: dict[str, Sample], better: str, worse: str) -> tuple[Sample, Sample]:
    return samples[better], samples[worse]
