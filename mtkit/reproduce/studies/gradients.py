"""Gradients through time: recurrences that vanish and explode, gates that remember, attention that shortens the way."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mtkit import models
from mtkit.analyze.complexity import exponent
from mtkit.analyze.influence import source_gradients
from mtkit.analyze.memory_span import N_SYMBOLS, Recall, gradients_through_time, learn_recall
from mtkit.analyze.memory_span import Cell as Kind
from mtkit.data.batch import make_batch
from mtkit.evaluate.charts import Point, line_figure
from mtkit.nn.recurrent import ElmanCell, GRUCell, LSTMCell
from mtkit.reproduce.findings import Cell, Findings, Picture, Table
from mtkit.reproduce.laboratory import Laboratory
from mtkit.reproduce.study import Settings, Training
from mtkit.reproduce.verdict import Outcome, Verdict, exactly
from mtkit.text.tokenizer import PAD_ID

TITLE = "Gradients through time: linear, plain and gated recurrence, reversal, attention"
SUBJECT = (
    "How strongly a state depends on one many steps before it: Jacobians of recurrent layers, a symbol recalled after "
    "a delay, and the gradient from target words to source words in untrained translators."
)
_STEPS = 100
_SCALES = (0.9, 1.1, 1.5)
_DELAYS = (2, 5, 10, 20, 50, 100)
_KINDS: tuple[Kind, ...] = ("elman", "gru", "lstm")
_LAG, _SEEDS = 50, (1, 2, 3)
_RECALLED = 0.5  # accuracy at which a symbol counts as remembered; chance is 1 / 8
_SENTENCE, _N_SENTENCES, _VOCAB = 20, 32, 50
_CEC_STEPS = 500
_POWER, _POWER_WIDTH = 50, 16
_ROUNDING = 1e-12  # of float64, relative, after so many products


def trainings(settings: Settings) -> list[Training]:
    return []


def report(laboratory: Laboratory) -> Findings:
    linear = {scale: gradients_through_time("linear", _STEPS, scale=scale) for scale in _SCALES}
    plain = {scale: gradients_through_time("elman", _STEPS, scale=scale) for scale in _SCALES}
    gated = {kind: gradients_through_time(kind, _STEPS) for kind in ("gru", "lstm")}
    recall = {(kind, delay): learn_recall(kind, delay) for kind in _KINDS for delay in _DELAYS}
    exploding = {clip: [_exploding(clip, seed) for seed in _SEEDS] for clip in (None, 1.0)}
    by_source = {name: _by_source(section) for name, section in _TRANSLATORS.items()}
    verdicts = [
        _power(),
        _linear_law(linear),
        _tanh(plain, linear),
        _clipping(exploding, recall),
        _carousel(),
        _sizes(),
        _spans(recall),
        _first_words(by_source),
        _attention_path(by_source),
    ]
    return Findings(
        verdicts,
        [_jacobian_table(linear, plain, gated), _recall_table(recall), _source_table(by_source)],
        [_jacobian_picture(linear, plain, gated), _recall_picture(recall), _source_picture(by_source)],
        [
            "The chapter's 10 to 20 steps for a plain recurrence and 100 to 200 for gated ones stand in no paper; here "
            "the task, the size (64 units) and the training (400 updates) decide, and only the order is claimed.",
        ],
    )


# --- Recurrent layers -------------------------------------------------------------------------------------------------


def _power() -> Verdict:
    """The Jacobian by backpropagation through every step beside the power of the recurrent matrix."""
    torch.manual_seed(1)
    cell = ElmanCell(_POWER_WIDTH, _POWER_WIDTH, linear=True).double()
    inputs = cell.input(torch.randn(_POWER, 1, _POWER_WIDTH).double()).detach()

    def last_state(state: Tensor) -> Tensor:
        for step in inputs:
            state = cell(step, state)
        return state

    start = torch.zeros(1, _POWER_WIDTH).double()
    found = torch.autograd.functional.jacobian(last_state, start)[0, :, 0]
    expected = torch.linalg.matrix_power(cell.recurrent.weight.detach(), _POWER)
    apart = ((found - expected).norm() / expected.norm()).item()
    reason = f"over {_POWER} steps of {_POWER_WIDTH} units they differ by {apart:.1e} of their norm, in float64"
    statement = "the Jacobian of a linear recurrence over T steps is the T-th power of its matrix"
    return exactly("CH-01", statement, apart < _ROUNDING, reason)


def _linear_law(linear: dict[float, list[float]]) -> Verdict:
    slopes = {scale: (math.log(norms[-1]) - math.log(norms[0])) / (len(norms) - 1) for scale, norms in linear.items()}
    holds = all(abs(slope - math.log(scale)) < 1e-6 for scale, slope in slopes.items())
    reason = ", ".join(f"modulus {scale}: norm {norms[-1]:.2g} after {_STEPS} steps" for scale, norms in linear.items())
    return exactly(
        "CH-02", "a linear recurrence vanishes below modulus 1 and explodes above, exponentially", holds, reason
    )


def _tanh(plain: dict[float, list[float]], linear: dict[float, list[float]]) -> Verdict:
    holds = all(plain[scale][-1] < linear[scale][-1] for scale in _SCALES)
    holds = holds and any(scale > 1 and plain[scale][-1] < 1 for scale in _SCALES)
    reason = ", ".join(
        f"modulus {scale}: {norms[-1]:.2g} (linear {linear[scale][-1]:.2g})" for scale, norms in plain.items()
    )
    statement = "the tanh makes gradients smaller: a modulus above 1 need not explode"
    return exactly("CH-03", statement, holds, f"norm after {_STEPS} steps, {reason}")


def _exploding(clip: float | None, seed: int) -> Recall:
    """A linear recurrence of modulus 1.1 that learns to recall over 50 steps: its gradients grow a hundredfold."""
    return learn_recall("linear", _LAG, recurrent_scale=1.1, sgd=True, lr=0.1, clip_norm=clip, updates=100, seed=seed)


def _clipping(exploding: dict[float | None, list[Recall]], recall: dict[tuple[Kind, int], Recall]) -> Verdict:
    """Where gradients explode, clipping makes the task learnable; where they vanish, it does not help."""
    near = min(_DELAYS)
    n_lost = sum(not each.stays_finite for each in exploding[None])
    n_kept = sum(each.stays_finite and each.accuracy > _RECALLED for each in exploding[1.0])
    plain_near, plain_far = recall["elman", near].accuracy, recall["elman", _LAG].accuracy
    reason = (
        f"linear, modulus 1.1, {_LAG} steps, {len(_SEEDS)} seeds: the loss is lost {n_lost} times without clipping; "
        f"with it {n_kept} learn the task. tanh with clipping recalls {plain_near:.0%} after {near} steps and "
        f"{plain_far:.0%} after {_LAG}, chance {1 / N_SYMBOLS:.0%}"
    )
    rule = (
        "shown: without clipping every exploding training loses its loss, with it every one recalls more than half; "
        f"and the vanishing one, clipped, recalls more than half after {near} steps and less than twice chance after "
        f"{_LAG}"
    )
    cures = n_lost == n_kept == len(_SEEDS)
    is_blind = plain_near > _RECALLED and plain_far < 2 / N_SYMBOLS
    outcome: Outcome = "shown" if cures and is_blind else "not shown"
    return Verdict("CH-04", "clipping cures explosion, not vanishing", outcome, reason, rule)


def _carousel() -> Verdict:
    """f = 1 and i = 0: the cell hands on what it holds, and its gradient, unchanged."""
    cell = LSTMCell(1, 4).double()
    hidden = torch.zeros(1, 4).double()
    start = torch.randn(1, 4).double().requires_grad_()
    memory, open_gate = start, torch.tensor([-1e4, 1e4, 0.0, 0.0]).repeat_interleave(4)[None].double()
    nn.init.zeros_(cell.recurrent.weight)
    for _ in range(_CEC_STEPS):
        hidden, memory = cell(open_gate, hidden, memory)
    (gradient,) = torch.autograd.grad(memory.sum(), start)
    holds = torch.equal(gradient, torch.ones_like(gradient)) and torch.equal(memory, start)
    reason = (
        f"forget gate 1, input gate 0: after {_CEC_STEPS} steps the cell and its gradient are the same to the last bit"
    )
    return exactly("CH-05", "a cell whose forget gate is open keeps its gradient", holds, reason)


def _sizes() -> Verdict:
    cells: dict[str, Any] = {"GRU": GRUCell(256, 256), "LSTM": LSTMCell(256, 256)}
    sizes = {name: sum(parameter.numel() for parameter in cell.parameters()) for name, cell in cells.items()}
    times = {name: _scan_seconds(cell) for name, cell in cells.items()}
    reason = (
        f"{sizes['GRU']:,} against {sizes['LSTM']:,} parameters at d = 256; a scan of 100 steps takes "
        f"{1000 * times['GRU']:.1f} against {1000 * times['LSTM']:.1f} ms"
    )
    is_small, is_fast = 4 * sizes["GRU"] == 3 * sizes["LSTM"], times["GRU"] < times["LSTM"]
    rule = "shown: parameters in the ratio 3 to 4, and less time for a scan of 64 sequences"
    outcome: Outcome = "shown" if is_small and is_fast else "not shown" if is_small else "contradicted"
    return Verdict("CH-06", "a GRU has three quarters of an LSTM's parameters and is faster", outcome, reason, rule)


def _scan_seconds(cell: GRUCell | LSTMCell) -> float:
    inputs, zero = cell.input(torch.randn(100, 64, 256)).detach(), cell.zero_state(64)
    found = []
    for _ in range(10):
        begun = time.perf_counter()
        with torch.no_grad():
            cell.scan(inputs, zero) if isinstance(cell, GRUCell) else cell.scan(inputs, zero, zero)
        found.append(time.perf_counter() - begun)
    return min(found)


def _spans(recall: dict[tuple[Kind, int], Recall]) -> Verdict:
    spans = {
        kind: max((delay for delay in _DELAYS if recall[kind, delay].accuracy > _RECALLED), default=0)
        for kind in _KINDS
    }
    holds = spans["elman"] < min(spans["gru"], spans["lstm"])
    reason = "longest delay with more than half recalled: " + ", ".join(
        f"{kind} {span}" for kind, span in spans.items()
    )
    rule = "shown: the plain recurrence recalls over a shorter delay than both gated ones, of those that were tried"
    return Verdict("CH-07", "gated cells remember longer", "shown" if holds else "not shown", reason, rule)


# --- Translators ------------------------------------------------------------------------------------------------------

_SIZES = {"d_embedding": 64, "dropout": 0.0}
_TRANSLATORS: dict[str, dict[str, Any]] = {
    "fixed vector (RNNencdec)": {"type": "rnnencdec", **_SIZES, "d_encoder": 64, "d_hidden": 64, "d_maxout": 64},
    "attention (RNNsearch)": {
        **{"type": "rnnsearch", **_SIZES, "d_encoder": 64, "d_hidden": 64},
        **{"d_attention": 64, "d_maxout": 64},
    },
    "Seq2Seq forwards": {"type": "seq2seq", **_SIZES, "d_hidden": 64, "n_layers": 1, "reverse_source": False},
    "Seq2Seq backwards": {"type": "seq2seq", **_SIZES, "d_hidden": 64, "n_layers": 1, "reverse_source": True},
}


def _by_source(section: dict[str, Any]) -> dict[str, np.ndarray]:
    """Gradient norms from the first, middle and last target word to each source word, geometric means, [source]."""
    torch.manual_seed(1)
    model = models.build(section, _VOCAB, _VOCAB, PAD_ID).double()
    rows = torch.randint(4, _VOCAB, (2, _N_SENTENCES, _SENTENCE)).tolist()
    batch = make_batch(rows[0], rows[1])
    found = {}
    for name, position in (("first", 0), ("middle", _SENTENCE // 2), ("last", _SENTENCE - 1)):
        norms = source_gradients(model, batch, position)[:, :_SENTENCE].double()
        found[name] = norms.clamp_min(1e-30).log().mean(0).exp().numpy()
    return found


def _first_words(by_source: dict[str, dict[str, np.ndarray]]) -> Verdict:
    forwards, backwards = (by_source[f"Seq2Seq {way}"]["first"][0] for way in ("forwards", "backwards"))
    reason = f"{backwards:.2e} read backwards, {forwards:.2e} forwards, {_SENTENCE} words, untrained"
    statement = "read backwards, the first source word moves the first target word more"
    return exactly("CH-12", statement, bool(backwards > forwards), reason)


def _attention_path(by_source: dict[str, dict[str, np.ndarray]]) -> Verdict:
    fixed, attention = (by_source[name]["last"] for name in list(_TRANSLATORS)[:2])
    reason = (
        f"from the last target word to the first source word {attention[0]:.2e} with attention, {fixed[0]:.2e} "
        f"without; weakest source word {attention.min():.2e} and {fixed.min():.2e}"
    )
    holds = bool(attention[0] > fixed[0] and attention.min() > fixed.min())
    return exactly("CH-38", "attention shortens the way to every source word", holds, reason)


# --- Tables and pictures ----------------------------------------------------------------------------------------------


def _named(
    linear: dict[float, list[float]], plain: dict[float, list[float]], gated: dict[str, list[float]]
) -> dict[str, list[float]]:
    return {
        **{f"linear, modulus {scale}": norms for scale, norms in linear.items()},
        **{f"tanh, modulus {scale}": norms for scale, norms in plain.items()},
        **{kind.upper(): norms for kind, norms in gated.items()},
    }


def _jacobian_table(
    linear: dict[float, list[float]], plain: dict[float, list[float]], gated: dict[str, list[float]]
) -> Table:
    shown = (1, 10, 20, 50, 100)
    rows: list[list[Cell]] = []
    for name, norms in _named(linear, plain, gated).items():
        power = exponent([math.e**t for t in (50, 100)], [max(norms[t - 1], 1e-300) for t in (50, 100)])
        rows.append([name, *(f"{norms[t - 1]:.2e}" for t in shown), math.exp(power)])
    header = ("layer", *(f"after {t} steps" for t in shown), "factor of a step, 50 to 100")
    note = (
        "Spectral norm of d s_T / d s_0, s the state, of an LSTM both of its states. Untrained, d = 64: the gates of "
        "a GRU stand half open at the start, and it forgets as fast as a tanh of modulus 0.9 until it has learned to "
        "close them; the forget gate of the LSTM starts with a bias of 1."
    )
    return Table("jacobians", "Gradients through time", header, rows, note, 3)


def _recall_table(recall: dict[tuple[Kind, int], Recall]) -> Table:
    rows: list[list[Cell]] = [[delay, *(100 * recall[kind, delay].accuracy for kind in _KINDS)] for delay in _DELAYS]
    note = f"Percent of 512 new sequences; one of {N_SYMBOLS} symbols, then noise. 64 units, 400 updates with Adam."
    return Table("recall", "A symbol recalled after a delay", ("delay", *_KINDS), rows, note, 1)


def _source_table(by_source: dict[str, dict[str, np.ndarray]]) -> Table:
    rows: list[list[Cell]] = [
        [name, place, *(f"{norms[j]:.2e}" for j in (0, _SENTENCE // 2, _SENTENCE - 1))]
        for name, found in by_source.items()
        for place, norms in found.items()
    ]
    header = ("translator", "target word", "first source word", "middle", "last")
    note = (
        f"|d log p(y_t) / d E x_j|, geometric means over {_N_SENTENCES} random pairs of {_SENTENCE} words; untrained."
    )
    return Table("source", "From target words to source words", header, rows, note)


def _jacobian_picture(
    linear: dict[float, list[float]], plain: dict[float, list[float]], gated: dict[str, list[float]]
) -> Picture:
    lines = {
        name: [Point(t, max(norms[t - 1], 1e-20)) for t in range(1, _STEPS + 1, 3)]
        for name, norms in _named(linear, plain, gated).items()
    }
    figure = line_figure(lines, x_label="steps", y_label="spectral norm of the Jacobian", y_scale="log")
    return Picture("jacobians", "Gradients through time", figure)


def _recall_picture(recall: dict[tuple[Kind, int], Recall]) -> Picture:
    lines: dict[str, list[Point]] = {
        kind: [Point(place, 100 * recall[kind, delay].accuracy) for place, delay in enumerate(_DELAYS)]
        for kind in _KINDS
    }
    ticks = {float(place): str(delay) for place, delay in enumerate(_DELAYS)}
    figure = line_figure(lines, x_label="delay (steps)", y_label="recalled, %", x_ticks=ticks)
    return Picture("recall", "A symbol recalled after a delay", figure, f"Chance: {100 / N_SYMBOLS:.1f}%.")


def _source_picture(by_source: dict[str, dict[str, np.ndarray]]) -> Picture:
    ticks = {float(word): str(word) for word in (1, *range(5, _SENTENCE + 1, 5))}
    lines = {
        name: [Point(j + 1, float(found["last"][j])) for j in range(_SENTENCE)] for name, found in by_source.items()
    }
    figure = line_figure(
        lines, x_label="source word", y_label="gradient from the last target word", y_scale="log", x_ticks=ticks
    )
    return Picture("source", "From the last target word to each source word", figure)
