"""Reading the source backwards: what it gives a fixed vector, and what it gives attention (Sutskever et al. 2014)."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import numpy as np
import torch

from mtkit import models
from mtkit.analyze.influence import source_gradients
from mtkit.analyze.lags import lags
from mtkit.data.batch import make_batch
from mtkit.evaluate.charts import Point, line_figure
from mtkit.reproduce.bleu_rows import measured_bleu, signature
from mtkit.reproduce.findings import Cell, Findings, Picture, Table
from mtkit.reproduce.laboratory import Laboratory, ParallelText
from mtkit.reproduce.study import WMT_EN_DE, Settings, Training
from mtkit.reproduce.verdict import Sample, Verdict, beats, exactly, gains_more, interval_above_zero
from mtkit.text.tokenizer import PAD_ID

TITLE = "Reversal: the source read backwards, with a fixed vector and with attention"
SUBJECT = (
    "Seq2Seq and Luong's global attention, each with the source read backwards and forwards: BLEU, the distance in "
    "time between a word and its translation, and how strongly the first source word moves the first target word."
)
_N_PROBED = 100  # sentences whose gradients are measured
_SEQ2SEQ = ("Seq2Seq backwards", "Seq2Seq forwards")
_LUONG = ("Luong global backwards", "Luong global forwards")

# Test BLEU of a single LSTM, WMT14 En-Fr, and perplexity, §3.3 and Table 1 (which has 26.17 for forwards).
_PAPER = {_SEQ2SEQ[0]: (30.59, 30.59, 4.7), _SEQ2SEQ[1]: (25.9, 26.17, 5.8)}


def trainings(settings: Settings) -> list[Training]:
    scale = settings.scale
    folder = "wmt14" if scale == "paper" else scale
    data = WMT_EN_DE if scale == "paper" else ()
    return [
        Training(_SEQ2SEQ[0], f"{folder}/seq2seq.yaml", data),
        Training(_SEQ2SEQ[1], f"{folder}/seq2seq_forward.yaml", data),
        Training(_LUONG[0], f"{folder}/luong_global.yaml", (*data, "model.reverse_source=true")),
        Training(_LUONG[1], f"{folder}/luong_global.yaml", (*data, "model.reverse_source=false")),
    ]


def report(laboratory: Laboratory) -> Findings:
    contestants = trainings(laboratory.settings)
    set_name = laboratory.test_set(contestants[0])
    samples = [laboratory.sample(training, set_name) for training in contestants]
    text = laboratory.test_text(contestants[0], set_name)
    trained = [_first_word_gradients(laboratory, each, text, trained=True) for each in contestants]
    untrained = [_first_word_gradients(laboratory, each, text, trained=False) for each in contestants]
    moved = np.log(trained[0]) - np.log(trained[1])
    verdicts = [
        beats("CH-10", "reading the source backwards helps Seq2Seq", (samples[0], samples[1])),
        _lag_verdict(),
        interval_above_zero(
            "CH-12",
            "the first source word moves the first target word more when the source is read backwards",
            moved,
            f"log ratio of the gradients' norms, trained Seq2Seq (a ratio of {np.exp(moved.mean()):.2f})",
            samples[0],
            samples[1],
        ),
        gains_more(
            "CH-13",
            "reversal gains less where there is attention",
            (samples[0], samples[1]),
            (samples[2], samples[3]),
        ),
    ]
    return Findings(
        verdicts,
        [_bleu_table(laboratory, contestants, samples), _gradient_table(contestants, trained, untrained)],
        [_lag_picture()],
        [
            "The chapter explains reversal with the wrong end of the sentence: it is the first source words that come "
            "to stand beside the first target words (Sutskever et al. 2014, §3.3).",
        ],
    )


def _bleu_table(laboratory: Laboratory, contestants: Sequence[Training], samples: Sequence[Sample]) -> Table:
    rows: list[list[Cell]] = []
    for training, sample in zip(contestants, samples, strict=True):
        chapter, paper, paper_ppl = _PAPER.get(training.label, (None, None, None))
        rows.append([training.label, chapter, paper, paper_ppl, measured_bleu(sample), laboratory.dev_ppl(training)])
    header = ("system", "chapter, BLEU", "paper, BLEU", "paper, perplexity", "ours, BLEU", "ours, dev perplexity")
    note = (
        "The chapter's 25.9 for reading forwards is that of the paper's text (§3.3, beside a perplexity of 5.8); the "
        "paper's Table 1 has 26.17 for it, with a beam of 12: the paper is not at one with itself. Its figures are "
        "tokenised BLEU and perplexity of words on newstest2014, English to French: no number of ours can be compared "
        f"with them, only the direction. {signature(samples[0])}"
    )
    return Table("bleu", "BLEU and perplexity", header, rows, note)


def _gradient_table(
    contestants: Sequence[Training], trained: Sequence[np.ndarray], untrained: Sequence[np.ndarray]
) -> Table:
    rows: list[list[Cell]] = [
        [training.label, float(np.exp(np.log(before).mean())), float(np.exp(np.log(after).mean()))]
        for training, before, after in zip(contestants, untrained, trained, strict=True)
    ]
    note = f"Norm of d log p(y_1) / d E x_1, geometric mean over the first {_N_PROBED} test sentences."
    return Table(
        "gradients", "First source word to first target word", ("system", "untrained", "trained"), rows, note, 5
    )


def _first_word_gradients(
    laboratory: Laboratory, training: Training, text: ParallelText, *, trained: bool
) -> np.ndarray:
    """The gradient's norm between the first words of each probed sentence, with each seed; [seeds, sentences]."""
    found = []
    for seed in laboratory.seeds:
        loaded = laboratory.model(training, seed)
        tokenizers, model = loaded.tokenizers, loaded.model
        if not trained:
            torch.manual_seed(seed)
            sizes = (tokenizers.src.vocab_size, tokenizers.trg.vocab_size)
            model = models.build(loaded.recipe.model, *sizes, PAD_ID).to(next(model.parameters()).device)
        src_rows = tokenizers.src.encode(text.sources[:_N_PROBED])
        batch = make_batch(src_rows, tokenizers.trg.encode(text.references[:_N_PROBED]))
        batch = batch.to(next(model.parameters()).device)
        found.append(source_gradients(model, batch, 0)[:, 0].double().cpu().numpy())
    return np.maximum(found, 1e-30)  # a gradient of exactly 0 has no logarithm


def _lag_verdict() -> Verdict:
    n_words = 20
    forwards, backwards = lags(n_words, reverse=False), lags(n_words, reverse=True)
    means = statistics.fmean(forwards), statistics.fmean(backwards)
    reason = (
        f"{n_words} words, translated one by one: mean lag {means[0]:g} and {means[1]:g} steps, least lag "
        f"{min(forwards)} and {min(backwards)}"
    )
    holds = means[0] == means[1] and min(backwards) < min(forwards)
    return exactly("CH-11", "reversal leaves the mean distance as it is and shortens the least", holds, reason)


def _lag_picture() -> Picture:
    n_words = 20
    ticks = {float(word): str(word) for word in (1, *range(5, n_words + 1, 5))}
    lines = {
        name: [Point(i, lag) for i, lag in enumerate(lags(n_words, reverse=reverse), start=1)]
        for name, reverse in (("forwards", False), ("backwards", True))
    }
    y_label = "steps from reading it to writing its translation"
    figure = line_figure(lines, x_label="word", y_label=y_label, x_ticks=ticks)
    return Picture("lags", "Distance in time of a word and its translation", figure, f"A sentence of {n_words} words.")
