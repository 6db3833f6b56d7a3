"""Ablation: the Transformer without one of its parts (chapter, figure 1-16)."""

from __future__ import annotations

from mtkit.evaluate.charts import bar_figure
from mtkit.reproduce.bleu_rows import bar, measured_bleu, signature
from mtkit.reproduce.findings import Cell, Findings, Picture, Table
from mtkit.reproduce.laboratory import Laboratory
from mtkit.reproduce.study import Settings, Training
from mtkit.reproduce.verdict import beats

TITLE = "Ablation: positions, scale, residual sums, layer normalisation, warm-up"
SUBJECT = (
    "The Transformer as it is, and without one part at a time. The scale 1/sqrt(d_k) is taken from a model with one "
    "wide head, where it matters most; the warm-up from a model with post-norm, as in the paper; residual sums and "
    "layer normalisation also from a stack of six layers."
)
_POST = ("model.norm=post",)
_WIDE = ("model.n_heads=1",)
_COLD = ("train.warmup_updates=1",)
_DEEP = ("model.n_layers=6",)
_WHOLE, _DEEP_WHOLE, _ONE_HEAD, _WARM = "whole", "six layers", "one head", "post-norm"
_CONTESTANTS: dict[str, tuple[str, ...]] = {
    _WHOLE: (),
    "no positions": ("model.positions=none",),
    "no residual sums": ("model.residual=false",),
    "no layer normalisation": ("model.layer_norm=false",),
    _ONE_HEAD: _WIDE,
    "one head, no scale": (*_WIDE, "model.scaled=false"),
    _WARM: _POST,
    "post-norm, no warm-up": (*_POST, *_COLD),
    _DEEP_WHOLE: _DEEP,
    "six layers, no residual sums": (*_DEEP, "model.residual=false"),
    "six layers, no layer normalisation": (*_DEEP, "model.layer_norm=false"),
}
# Table 3: base, rows C and A; by model and layers.
_PAPER = {(_WHOLE, 6): 25.8, (_DEEP_WHOLE, 6): 25.8, (_WHOLE, 2): 23.7, (_ONE_HEAD, 6): 24.9}
# The published base has six layers and post-norm already.
_PUBLISHED = ("whole", "no positions", "no residual sums", "no layer normalisation", "one head", "one head, no scale")


def trainings(settings: Settings) -> list[Training]:
    if settings.scale == "paper":
        published = {**{label: _CONTESTANTS[label] for label in _PUBLISHED}, "no warm-up": _COLD}
        return [Training(label, "wmt14/transformer_base.yaml", changes) for label, changes in published.items()]
    file = f"{settings.scale}/transformer.yaml"
    # Eleven trainings in half an hour: each is shorter than the recipe.
    own = ("train.updates=600",) if settings.scale == "toy" else ()
    return [Training(label, file, (*own, *changes)) for label, changes in _CONTESTANTS.items()]


def report(laboratory: Laboratory) -> Findings:
    contestants = trainings(laboratory.settings)
    set_name = laboratory.test_set(contestants[0])
    samples = {each.label: laboratory.sample(each, set_name) for each in contestants}
    whole = samples[_WHOLE]
    if laboratory.settings.scale == "paper":
        deep, no_sums, no_norms = whole, samples["no residual sums"], samples["no layer normalisation"]
        warm, cold, shallow = whole, samples["no warm-up"], []
    else:
        deep = samples[_DEEP_WHOLE]
        no_sums, no_norms = (samples[f"six layers, no {part}"] for part in ("residual sums", "layer normalisation"))
        warm, cold = samples[_WARM], samples["post-norm, no warm-up"]
        shallow = [
            beats(
                "CH-106",
                "residual sums and layer normalisation help the recipe's few layers too",
                (whole, samples["no residual sums"]),
                (whole, samples["no layer normalisation"]),
            )
        ]
    verdicts = [
        beats("CH-129", "without positions a Transformer is worse", (whole, samples["no positions"])),
        beats("CH-64", "removing the scale hurts training", (samples[_ONE_HEAD], samples["one head, no scale"])),
        beats(
            "CH-106",
            "residual sums and layer normalisation keep a deep stack trainable",
            (deep, no_sums),
            (deep, no_norms),
        ),
        *shallow,
        beats("CH-116", "training with post-norm needs the warm-up", (warm, cold)),
    ]
    bleu = {label: measured_bleu(sample) for label, sample in samples.items()}
    rows: list[list[Cell]] = []
    for training in contestants:
        place = laboratory.place(training, laboratory.seeds[0])
        n_layers = int(place.recipe.model["n_layers"])
        norm = "none" if not place.recipe.model["layer_norm"] else str(place.recipe.model["norm"])
        own: list[Cell] = [n_layers, norm, laboratory.facts(training, laboratory.seeds[0]).parameters]
        published = _PAPER.get((training.label, n_layers))
        rows.append([training.label, *own, published, bleu[training.label], laboratory.dev_ppl(training)])
    note = (
        "Norm: layer normalisation before a block (pre) or after its sum (post, as in the paper and the chapter). The "
        "paper's figures are BLEU on its dev set, newstest2013, of a base that has so many layers (Table 3; its model "
        "with one head has six); for what is taken away neither it nor the chapter prints any. All are trained alike, "
        f"so a part whose absence asks for another learning rate is judged at the recipe's. {signature(whole)}"
    )
    header = ("model", "layers", "norm", "parameters", "paper, dev BLEU", "BLEU", "dev perplexity")
    bars = {"BLEU": [bar(each) for each in bleu.values()]}
    figure = bar_figure(bars, list(bleu), y_label="BLEU")
    return Findings(
        verdicts,
        [Table("ablation", "BLEU without one part", header, rows, note)],
        [Picture("bleu", "BLEU without one part", figure, "Whiskers: 95% bootstrap intervals.")],
    )
