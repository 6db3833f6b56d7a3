"""Keys and values that heads share: what a decoder must keep, how fast it is, what it costs in BLEU."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from mtkit.evaluate.charts import bar_figure
from mtkit.reproduce.bleu_rows import bar, measured_bleu, signature
from mtkit.reproduce.description import cache_numbers_per_token
from mtkit.reproduce.findings import Cell, Findings, Measured, Picture, Table
from mtkit.reproduce.laboratory import Laboratory, ParallelText, translated_by
from mtkit.reproduce.study import Settings, Training
from mtkit.reproduce.verdict import Verdict, exactly, loses_less_than
from mtkit.search.translator import Translator

TITLE = "KV sharing: multi-head, grouped-query, multi-query and latent attention in the decoder"
SUBJECT = (
    "A Transformer whose decoder heads each have their own keys and values (MHA), share them by groups (GQA) or all "
    "together (MQA), or make them from one latent vector (MLA): numbers that decoding keeps for each target token, "
    "speed of greedy decoding, BLEU."
)
LARGEST_LOSS = 1.0  # BLEU that a variant may lose and still count as keeping most of the quality
_BYTES = 4  # of a number in fp32
_N_TIMED, _TIMES = 2000, 5  # sentences that greedy decoding is timed on at least, so often, all kinds in turn
# Shazeer 2019, dev newstest2013 English to German, the multi-query model with a wider feed-forward block; Ainslie et
# al. 2023, Table 1, T5 XXL on WMT English to German, GQA with 8 groups: BLEU, and seconds a sample.
_SHAZEER = {"MHA": 26.7, "MQA": 26.5}
_AINSLIE = {"MHA": (28.4, 1.51), "GQA": (28.4, 0.28), "MQA": (28.5, 0.24)}

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
    speeds = _decoding_speeds(laboratory, contestants, set_name)
    rows: list[list[Cell]] = []
    mistakes = []
    for training in contestants:
        section = laboratory.place(training, laboratory.seeds[0]).recipe.model
        counted, expected = cache_numbers_per_token(section), _formula(section)
        if counted != expected:
            mistakes.append(f"{training.label} keeps {counted}, not {expected}")
        facts = laboratory.facts(training, laboratory.seeds[0])
        own: list[Cell] = [
            facts.parameters,
            counted,
            counted * _BYTES,
            expected,
            _AINSLIE.get(training.label, (None, None))[1],
            Measured(tuple(speeds[training.label]), None, 0),
            _SHAZEER.get(training.label),
            _AINSLIE.get(training.label, (None, None))[0],
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
        *(faster(speeds, label) for label in ("GQA", "MQA")),
    ]
    header = (
        *("decoder attention", "parameters", "numbers kept for a token", "bytes, fp32"),
        *("by the formula", "Ainslie, s a sample", "decoder steps/s, greedy", "Shazeer, dev BLEU", "Ainslie, BLEU"),
        "BLEU",
    )
    note = (
        f"Steps are those of one hypothesis; mean and deviation of {_TIMES} timings of {_N_TIMED:,} sentences or more, "
        "the test set several times over if it is smaller, all kinds in turn. In small models and on a CPU time goes "
        "elsewhere than into reading keys and values, so their number shows in memory more than in speed. Shazeer "
        "(2019): newstest2013, English to German, the multi-query model with a wider feed-forward block; Ainslie et "
        "al. (2023): T5 XXL, English to German, 8 groups. For MLA there is no such figure. "
        f"{signature(samples['MHA'])}"
    )
    bars = {"BLEU": [bar(m) for m in (measured_bleu(each) for each in samples.values())]}
    figure = bar_figure(bars, list(samples), y_label="BLEU")
    return Findings(
        verdicts,
        [Table("kv-sharing", "Memory, speed and BLEU", header, rows, note)],
        [Picture("bleu", "BLEU by kind of decoder attention", figure, "Whiskers: 95% bootstrap intervals.")],
    )


def _decoding_speeds(laboratory: Laboratory, contestants: Sequence[Training], set_name: str) -> dict[str, list[float]]:
    """Decoder steps a second of greedy search, each of several timings, of the first seed's models."""
    translators = {}
    for training in contestants:
        loaded = laboratory.model(training, laboratory.seeds[0])
        device = next(loaded.model.parameters()).device
        search = loaded.recipe.search
        translators[training.label] = Translator.of(loaded.model, loaded.tokenizers, search, beam_size=1, device=device)
    tested = laboratory.test_text(contestants[0], set_name)
    n_times = math.ceil(_N_TIMED / len(tested.sources))
    text = ParallelText(n_times * tested.sources, n_times * tested.references)
    speeds: dict[str, list[float]] = {label: [] for label in translators}
    for turn in range(1 + _TIMES):
        for label, translator in translators.items():
            found = translated_by(translator, [translator.model], text, label)
            if turn:  # the first call of each finds nothing ready
                speeds[label].append(found.decoder_steps / max(found.seconds, 1e-9))
    return speeds


def faster(speeds: dict[str, list[float]], label: str) -> Verdict:
    """Does a kind of attention decode faster than heads with keys and values of their own?"""
    shared, own = speeds[label], speeds["MHA"]
    ratios = [ours / theirs for ours, theirs in zip(shared, own, strict=True)]
    n_faster = sum(ratio > 1 for ratio in ratios)
    return Verdict(
        "CH-86",
        f"sharing speeds decoding up: {label} above MHA",
        "shown" if n_faster >= len(own) - 1 else "contradicted" if n_faster <= 1 else "not shown",
        f"{statistics.median(ratios):.2f} times as many steps a second, the median of {len(own)} timings in turn; "
        f"faster in {n_faster} of them",
        "shown: faster in all of the timings or all but one, in which the machine may have done something else; "
        "contradicted: slower in as many; otherwise not shown",
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
