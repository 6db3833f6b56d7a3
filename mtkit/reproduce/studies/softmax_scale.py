"""The scale 1/sqrt(d_k): variance of dot products, saturation, temperature (chapter, 1.4.5 and 1.4.6)."""

from __future__ import annotations

import math

from mtkit.analyze.saturation import NO_GRADIENT, Saturation, measure_saturation
from mtkit.evaluate.charts import Point, line_figure
from mtkit.reproduce.findings import Cell, Findings, Picture, Table
from mtkit.reproduce.laboratory import Laboratory
from mtkit.reproduce.study import Settings, Training
from mtkit.reproduce.verdict import exactly

TITLE = "The scale of dot-product attention: variance, saturation, temperature"
SUBJECT = (
    "Queries and keys with components from N(0, 1), 4,000 queries over 64 keys each: what the softmax makes of their "
    "products as they are, divided by sqrt(d_k), and divided by other temperatures. No training."
)
WIDTHS = (1, 4, 16, 64, 256, 512)
TEMPERATURES = (0.1, 0.5, 1.0, 2.0, 4.0)


def trainings(settings: Settings) -> list[Training]:
    return []


def report(laboratory: Laboratory) -> Findings:
    plain = {d_k: measure_saturation(d_k) for d_k in WIDTHS}
    scaled = {d_k: measure_saturation(d_k, temperature=math.sqrt(d_k)) for d_k in WIDTHS}
    # Products of width 1 are no normal variables; of width 64, divided by 8, they nearly are, with variance 1.
    warm = {t: measure_saturation(64, temperature=t * 8.0) for t in TEMPERATURES}
    off = [
        f"{what} of d_k {d_k}"
        for what, found, expected in (("products", plain, lambda d_k: d_k), ("scaled products", scaled, lambda _: 1))
        for d_k, each in found.items()
        if abs(each.variance - expected(d_k)) > 3 * each.variance_error or abs(each.mean) > 3 * each.mean_error
    ]
    variances = [[each.variance for each in found.values()] for found in (plain, scaled)]
    largest, nats = [[getattr(each, name) for each in plain.values()] for name in ("largest_weight", "entropy")]
    gone = [each.share_without_gradient for each in plain.values()]
    entropies = [each.entropy for each in warm.values()]
    verdicts = [
        exactly(
            "CH-61",
            "q . k has mean 0 and variance d_k, and variance 1 after scaling",
            not off,
            f"variance {_range(variances[0])} of d_k {WIDTHS[0]} to {WIDTHS[-1]}, scaled {min(variances[1]):.3f} to "
            f"{max(variances[1]):.3f}; "
            + (
                f"more than three standard errors away: {', '.join(off)}"
                if off
                else "means and variances within three standard errors at every width"
            ),
        ),
        exactly(
            "CH-62",
            "the unscaled softmax saturates as d_k grows",
            largest == sorted(largest) and nats == sorted(nats, reverse=True),
            f"largest weight {_range(largest)}, entropy {_range(nats)} nats, of d_k {WIDTHS[0]} to {WIDTHS[-1]}",
        ),
        exactly(
            "CH-63",
            "saturation leaves no gradient; scaled products keep it",
            gone == sorted(gone) and gone[-1] > 0.5 and not any(e.share_without_gradient for e in scaled.values()),
            f"queries with a Jacobian norm below {NO_GRADIENT}: {gone[0]:.0%} to {gone[-1]:.0%} unscaled, "
            f"{max(e.share_without_gradient for e in scaled.values()):.0%} scaled",
        ),
        exactly(
            "CH-65",
            "a higher temperature is flatter",
            entropies == sorted(entropies),
            f"entropy {_range(entropies)} nats at temperature {TEMPERATURES[0]} to {TEMPERATURES[-1]}",
        ),
    ]
    tables = [
        _table("unscaled", "Products as they are", "d_k", plain),
        _table("scaled", "Divided by sqrt(d_k)", "d_k", scaled),
        _table("temperature", "Products of variance 1, divided by a temperature", "temperature", warm),
    ]
    ticks = {float(place): str(d_k) for place, d_k in enumerate(WIDTHS)}
    lines = {
        name: [Point(place, each.entropy) for place, each in enumerate(found.values())]
        for name, found in (("as they are", plain), ("divided by sqrt(d_k)", scaled))
    }
    figure = line_figure(lines, x_label="d_k", y_label="entropy of the weights (nats)", x_ticks=ticks)
    return Findings(
        verdicts, tables, [Picture("entropy", "Entropy against width", figure, "Uniform over 64 keys: 4.16 nats.")]
    )


_HEADER = (
    *("mean of the energies", "their variance", "its standard error", "largest weight", "entropy, nats"),
    *("keys above 0.1", "median norm of the Jacobian", "without gradient, %"),
)
_FINE = ("mean of the energies", "median norm of the Jacobian")


def _table(name: str, title: str, varied: str, found: dict[int, Saturation] | dict[float, Saturation]) -> Table:
    rows: list[list[Cell]] = [
        [
            value,
            each.mean,
            each.variance,
            each.variance_error,
            each.largest_weight,
            each.entropy,
            each.n_noticed,
            each.median_jacobian,
            100 * each.share_without_gradient,
        ]
        for value, each in found.items()
    ]
    note = (
        "Energies: what the softmax reads. Without gradient: queries whose Jacobian, of the weights with respect to "
        f"the energies, has a Frobenius norm below {NO_GRADIENT}."
    )
    return Table(name, title, (varied, *_HEADER), rows, note, column_decimals=dict.fromkeys(_FINE, 3))


def _range(values: list[float]) -> str:
    return f"{values[0]:.2f} to {values[-1]:.2f}"
