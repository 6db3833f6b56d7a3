"""Luong's scores and scopes: dot, general, concat, location x global, local-m, local-p (Luong et al. 2015, Table 4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mtkit.evaluate.alignment import alignment_error_rate
from mtkit.evaluate.charts import bar_figure
from mtkit.models import parse_config
from mtkit.reproduce.bleu_rows import bar, measured_bleu, signature
from mtkit.reproduce.findings import Cell, Findings, Measured, Picture, Table
from mtkit.reproduce.laboratory import STEEP, Laboratory, Search
from mtkit.reproduce.studies.attention_maps import rank_correlation
from mtkit.reproduce.study import Scale, Settings, Training
from mtkit.reproduce.verdict import BEATS_RULE, UNTESTABLE, Outcome, Sample, Verdict, beats, compare, why_untestable
from mtkit.reproduce.word_alignment import NO_ALIGNMENTS, reference_links

TITLE = "Luong's attention: four scores, global and local"
SUBJECT = (
    "The same LSTM with input feeding, the source read backwards; only the score of a source position and the "
    "positions that are looked at differ."
)

KINDS = ("global", "local_m", "local_p")
SCORES = ("dot", "general", "concat", "location")
_PAPER_WINDOW = 10


class Printed(NamedTuple):
    """A row of the paper's Table 4: English to German, newstest2014, tokenised BLEU."""

    ppl: float | None = None
    bleu: float | None = None  # before <unk> is replaced
    replaced: float | None = None  # after


TABLE_4 = {
    ("global", "location"): Printed(6.4, 18.1, 19.3),
    ("global", "dot"): Printed(6.1, 18.6, 20.5),
    ("global", "general"): Printed(6.1, 17.3, 19.1),
    ("global", "concat"): Printed(6.7),  # footnote 15, as all of concat
    ("local_m", "dot"): Printed(7.0),
    ("local_m", "general"): Printed(6.2, 18.6, 20.4),
    ("local_m", "concat"): Printed(7.1),
    ("local_p", "dot"): Printed(6.6, 18.0, 19.6),
    ("local_p", "general"): Printed(5.9, 19.0, 20.9),
    ("local_p", "concat"): Printed(7.1),
}
_CHAPTER = {
    ("global", "dot"): 17.04,
    ("global", "general"): 17.32,
    ("global", "concat"): 16.99,
    ("local_p", "general"): 17.57,
}
_PAPER_ERROR = {
    ("global", "location"): 0.39,
    ("local_m", "general"): 0.34,
    ("local_p", "general"): 0.36,
}  # alignment error rate on RWTH's English-German alignments, table 6


def _label(kind: str, score: str) -> str:
    return f"{kind.replace('_', '-')} {score}"


def trainings(settings: Settings) -> list[Training]:
    scale = settings.scale
    folder = "wmt14" if scale == "paper" else scale
    # Twelve trainings in half an hour: each is shorter than the recipe.
    own = ("model.reverse_source=true", *(("train.updates=1300",) if scale == "toy" else ()))
    return [
        Training(
            _label(kind, score),
            f"{folder}/luong_global.yaml",
            (
                *own,
                f"model.attention={kind}",
                f"model.score={score}",
                *(local_window(scale) if kind != "global" else ()),
            ),
        )
        for kind in KINDS
        for score in SCORES
    ]


def local_window(scale: Scale) -> tuple[str, ...]:
    """What local attention is given beside its kind and score."""
    # Toy sentences and the captions of Multi30k have about a dozen words or fewer: the paper's D = 10 to each side
    # would leave hardly any of them out.
    return () if scale == "paper" else ("model.window=5",)


def window_note(laboratory: Laboratory, training: Training) -> str:
    """How far the local attention of a training sees."""
    window = parse_config(laboratory.place(training, laboratory.seeds[0]).recipe.model).model_dump()["window"]
    note = f"Local attention looks at most {window} tokens to each side; the paper's D is {_PAPER_WINDOW}."
    hint = f" Longer sentences may need more: --set model.window={_PAPER_WINDOW}."
    return note + (hint if window < _PAPER_WINDOW else "")


def foresee(laboratory: Laboratory) -> list[str]:
    first = trainings(laboratory.settings)[0]
    return [] if laboratory.alignments(first, laboratory.test_set(first)) else [f"CH-56: {NO_ALIGNMENTS}"]


def report(laboratory: Laboratory) -> Findings:
    contestants = trainings(laboratory.settings)
    set_name = laboratory.test_set(contestants[0])
    # The table's figures are those before <unk> is replaced; subwords have none to replace.
    search = Search(unknown="keep") if laboratory.settings.scale == "paper" else None
    samples = {training.label: laboratory.sample(training, set_name, search) for training in contestants}
    bleu = {label: measured_bleu(sample) for label, sample in samples.items()}
    best = _label("local_p", "general")
    rival = max((label for label in samples if label != best), key=lambda label: bleu[label].mean)
    errors = _alignment_errors(laboratory, contestants, set_name)
    dot, general, concat, location = (samples[_label("global", score)] for score in SCORES)
    by_label = {training.label: training for training in contestants}

    def judged(claim: str, statement: str, *pairs: tuple[Sample, Sample], n_tried: int = 1) -> Verdict:
        compared = dict.fromkeys(by_label[sample.label] for pair in pairs for sample in pair)
        return _unless_learning(laboratory, [*compared], beats(claim, statement, *pairs, n_tried=n_tried))

    verdicts = [
        judged(
            "CH-46", "the paper's order, global: dot above location above general", (dot, location), (location, general)
        ),
        judged("CH-46", "the chapter's order, global: general above dot above concat", (general, dot), (dot, concat)),
        judged("CH-46", "the paper's footnote: concat is the poorest global score", (dot, concat), (general, concat)),
        judged(
            "CH-46",
            "the paper's conclusion for local attention: general above dot",
            *((samples[_label(kind, "general")], samples[_label(kind, "dot")]) for kind in ("local_m", "local_p")),
        ),
        judged(
            "CH-47",
            "local-p with score general is the best single model",
            (samples[best], samples[rival]),
            n_tried=len(samples) - 1,
        ),
        _alignment_verdict(errors, samples, {label: each.mean for label, each in bleu.items()}),
    ]
    rows: list[list[Cell]] = []
    for training, (kind, score) in zip(contestants, ((k, s) for k in KINDS for s in SCORES), strict=True):
        paper = TABLE_4.get((kind, score), Printed())
        published = [_CHAPTER.get((kind, score)), paper.bleu, paper.ppl, _PAPER_ERROR.get((kind, score))]
        own = [bleu[training.label], laboratory.dev_ppl(training), errors.get(training.label)]
        rows.append([kind.replace("_", "-"), score, *published, *own])
    header = (
        *("attention", "score", "chapter, BLEU", "paper, BLEU", "paper, perplexity", "paper, alignment error"),
        *("BLEU", "dev perplexity", "alignment error"),
    )
    note = (
        "The paper's figures are tokenised BLEU on newstest2014, English to German, before <unk> is replaced. Of the "
        "chapter's four, 17.32 is the paper's 17.3; the other three are not its figures: they order dot and general "
        "the other way, and for concat the paper prints no BLEU. Location with a local window is in neither. Ours: "
        f"sacreBLEU on the test set {set_name}; only the order can be compared. Alignment error: of the attention on "
        f"the references, against the right links where the corpus has them. {signature(dot)}"
    )
    bars = {score: [bar(bleu[_label(kind, score)]) for kind in KINDS] for score in SCORES}
    figure = bar_figure(bars, [kind.replace("_", "-") for kind in KINDS], y_label="BLEU")
    return Findings(
        verdicts,
        [Table("bleu", "BLEU and perplexity", header, rows, note)],
        [Picture("bleu", "BLEU by score and scope", figure, "Whiskers: 95% bootstrap intervals.")],
        [window_note(laboratory, contestants[-1])],
    )


def _unless_learning(laboratory: Laboratory, compared: Sequence[Training], verdict: Verdict) -> Verdict:
    """The verdict, if all that it compares had learned most of what they will: scores begin to work at unlike times."""
    verdict = verdict._replace(
        rule=f"{verdict.rule}; {UNTESTABLE}: the dev BLEU of one was at its last look {STEEP:g} times what it was at "
        "the look before, or more"
    )
    learning = laboratory.still_learning(*compared)
    reason = f"{verdict.reason}; still learning, dev BLEU {learning}"
    return verdict._replace(outcome=UNTESTABLE, reason=reason) if learning else verdict


def _alignment_errors(laboratory: Laboratory, contestants: Sequence[Training], set_name: str) -> dict[str, Measured]:
    """The alignment error rate of each system's attention on the references; none where the links are not known."""
    gold = laboratory.alignments(contestants[0], set_name)
    if gold is None:
        return {}
    text = laboratory.test_text(contestants[0], set_name)
    found = {}
    for training in contestants:
        loaded = [laboratory.model(training, seed) for seed in laboratory.seeds]
        links = [reference_links(each, text.sources, text.references) for each in loaded]
        found[training.label] = Measured(tuple(alignment_error_rate(each, gold) for each in links), decimals=3)
    return found


def _alignment_verdict(errors: dict[str, Measured], samples: dict[str, Sample], bleu: dict[str, float]) -> Verdict:
    """Whether a better aligner is a better translator, over all the systems."""
    statement = "alignments can be judged by their error rate, and its order is not that of BLEU"
    rule = (
        "shown: the system with the highest BLEU is not the one with the least alignment error, and beats it "
        f"({BEATS_RULE.partition(';')[0].removeprefix('shown: ')}); contradicted: both order all systems alike; "
        "otherwise not shown"
    )
    if not errors:
        return Verdict("CH-56", statement, UNTESTABLE, NO_ALIGNMENTS, rule)
    aligner, translator = min(errors, key=lambda label: errors[label].mean), max(bleu, key=lambda label: bleu[label])
    found = compare(samples[translator], samples[aligner])
    alike = rank_correlation([bleu[label] for label in errors], [-each.mean for each in errors.values()])
    reason = (
        f"least error: {aligner}, {errors[aligner].mean:.3f} with {bleu[aligner]:.2f} BLEU; highest BLEU: "
        f"{translator}, {errors[translator].mean:.3f} with {bleu[translator]:.2f} BLEU; p {found.p_value:.3f}; rank "
        f"correlation of BLEU with little error over the {len(errors)} systems: {alike:.2f}"
    )
    outcome: Outcome = found.outcome if found.outcome in ("shown", UNTESTABLE) else "not shown"
    if outcome == UNTESTABLE:
        reason += f"; {why_untestable(samples[translator], samples[aligner])}"
    elif alike == 1:
        outcome = "contradicted"
    return Verdict("CH-56", statement, outcome, reason, rule)
