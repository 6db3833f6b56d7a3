"""Keys and values that heads share: what a decoder must keep, how fast it is, what it costs in BLEU."""

from __future__ import annotations

from mtkit.evaluate.charts import bar_figure
from mtkit.reproduce.bleu_rows import bar, measured_bleu, signature
from mtkit.reproduce.description import cache_numbers_per_token
from mtkit.reproduce.findings import Cell, Findings, Measured, Picture, Table
from mtkit.reproduce.laboratory import Laboratory, Search
from mtkit.reproduce.study import Settings, Training
from mtkit.reproduce.verdict import exactly, loses_less_than

TITLE = "KV sharing: multi-head, grouped-query, multi-query and latent attention in the decoder"
SUBJECT = (
    "A Transformer whose decoder heads each have their own keys and values (MHA), share them by groups (GQA) or all "
    "together (MQA), or make them from one latent vector (MLA): numbers that decoding keeps for each target token, "
    "seconds of greedy decoding, BLEU."
)
LARGEST_LOSS = 1.0  # BLEU that a variant may lose and still count as keeping most of the quality
_BYTES = 4  # of a number in fp32

_KINDS = {
    "MHA": ("model.kv=mha",),
    "GQA": ("model.kv=gqa", "model.n_kv_groups=2"),
    "MQA": ("model.kv=mqa",),
    "MLA": ("model.kv=mla",),
}


def trainings(settings: Settings) -> list[Training]:
    file = "wmt14/transformer_base.yaml" if settings.scale == "paper" else f"{settings.scale}/transformer.yaml"
    return [Training(label, file, changes) for label, changes in _KINDS.items()]


def report(laboratory: Laboratory) -> Findings:
    contestants = trainings(laboratory.settings)
    set_name = laboratory.test_set(contestants[0])
    samples = {each.label: laboratory.sample(each, set_name) for each in contestants}
    rows: list[list[Cell]] = []
    mistakes = []
    for training in contestants:
        section = laboratory.place(training, laboratory.seeds[0]).recipe.model
        counted, expected = cache_numbers_per_token(section), _formula(section)
        if counted != expected:
            mistakes.append(f"{training.label} keeps {counted}, not {expected}")
        greedy = [laboratory.translate([(training, s)], set_name, Search(beam_size=1)) for s in laboratory.seeds]
        speed = Measured(tuple(each.decoder_steps / max(each.seconds, 1e-9) for each in greedy), None, 0)
        facts = laboratory.facts(training, laboratory.seeds[0])
        own: list[Cell] = [
            facts.parameters,
            counted,
            counted * _BYTES,
            expected,
            speed,
            measured_bleu(samples[training.label]),
        ]
        rows.append([training.label, *own])
    kept = ", ".join(f"{row[0]} {row[2]}" for row in rows)
    verdicts = [
        exactly(
            "CH-85",
            "what is kept for a token is 2 h d_k (MHA), 2 g d_k (GQA), 2 d_k (MQA), d_c (MLA) numbers in every layer",
            not mistakes,
            "; ".join(mistakes) or f"numbers of all layers, counted in the decoder's state: {kept}",
        ),
        loses_less_than(
            "CH-86",
            f"sharing keeps the quality: no variant loses {LARGEST_LOSS:g} BLEU",
            samples["MHA"],
            [samples[label] for label in ("GQA", "MQA", "MLA")],
            LARGEST_LOSS,
        ),
    ]
    header = (
        *("decoder attention", "parameters", "numbers kept for a token", "bytes, fp32"),
        *("by the formula", "decoder steps/s, greedy", "BLEU"),
    )
    note = (
        "Steps are those of one hypothesis; on the CPU, and with few heads, the time goes elsewhere than into reading "
        f"keys and values, so their number shows in memory more than in speed. {signature(samples['MHA'])}"
    )
    bars = {"BLEU": [bar(m) for m in (measured_bleu(each) for each in samples.values())]}
    figure = bar_figure(bars, list(samples), y_label="BLEU")
    return Findings(
        verdicts,
        [Table("kv-sharing", "Memory, speed and BLEU", header, rows, note)],
        [Picture("bleu", "BLEU by kind of decoder attention", figure, "Whiskers: 95% bootstrap intervals.")],
    )


def _formula(section: dict[str, object]) -> int:
    """Numbers for a token in all layers, by the chapter."""
    n_layers, n_heads, d_model, groups, d_latent = (
        int(str(section[key])) for key in ("n_layers", "n_heads", "d_model", "n_kv_groups", "d_latent")
    )
    d_head = d_model // n_heads
    a_head = int(str(section["d_key"] or d_head)) + d_head
    each = {"mha": n_heads * a_head, "gqa": groups * a_head, "mqa": a_head, "mla": d_latent}
    return n_layers * each[str(section["kv"])]
