"""Table 1-7: cost, sequential operations and path length of recurrence, convolution and attention."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import nn

from mtkit.analyze.complexity import (
    attention_flops,
    convolution_flops,
    counted_flops,
    exponent,
    operations,
    path_length,
    receptive_field,
    recurrent_flops,
    seconds,
)
from mtkit.analyze.layers import (
    KERNEL,
    WINDOW,
    BlockedAttentionLayer,
    SelfAttentionLayer,
    attentive,
    convolutional,
    recurrent,
    recurrent_steps,
    windowed,
)
from mtkit.evaluate.charts import Point, line_figure
from mtkit.reproduce.findings import Cell, Findings, Picture, Table
from mtkit.reproduce.laboratory import Laboratory
from mtkit.reproduce.study import Settings, Training
from mtkit.reproduce.verdict import Outcome, Verdict, exactly

TITLE = "Table 1-7: recurrence, convolution, attention, restricted attention"
SUBJECT = (
    "One layer of each over a sentence of n positions of width d: FLOPs by formula and by counter, tensor operations "
    "one after the other, layers between the first and the last position by gradients, and time on this machine."
)
_D, _LENGTHS = 256, (64, 128, 256, 512, 1024, 2048)
_WIDTHS, _N = (64, 128, 256, 512, 1024), 128
_PROBE_N, _PROBE_D = 17, 4
_DILATED_N = 14  # ends that rates of 1, 3 and 9 join exactly
_FIELDS = ((3, 1), (3, 2), (3, 3), (3, 4), (5, 1), (5, 2), (5, 3))  # kernel, layers
_COUNT_N, _COUNT_D = 64, 48  # short enough for attention to be plain products, which the counter sees
_COUNT_NS, _COUNT_DS = (32, 64, 96), (16, 48)  # the same, of which the verdict is
_MARGIN = 0.3  # of an exponent of time
_LAST = 4  # sizes that an exponent is fitted to
_SECONDS = 0.5  # that each time is looked for: other work on the machine makes single calls slower


class _Family(NamedTuple):
    build: Callable[[int], nn.Module]
    cost: str  # as the paper prints it, and the next two
    sequential: str
    path: str
    term: Callable[[int, int, int], int]  # what cost says, of n, d and the reach
    flops: Callable[[int, int], int]
    layers: Callable[[int], int]  # between positions that lie so far apart
    reach: int = 1  # k of a convolution, r of restricted attention
    n_projections: int = 0  # of n positions by d x d matrices, which the cost leaves out


_FAMILIES = {
    "recurrence": _Family(
        recurrent, "O(n d^2)", "O(n)", "O(n)", lambda n, d, _: n * d * d, recurrent_flops, lambda distance: 1
    ),
    "convolution": _Family(
        convolutional,
        "O(k n d^2)",
        "O(1)",
        "O(log_k n)",
        lambda n, d, k: k * n * d * d,
        lambda n, d: convolution_flops(n, d, KERNEL),
        lambda distance: math.ceil(2 * distance / (KERNEL - 1)),
        reach=KERNEL,
    ),
    "self-attention": _Family(
        attentive,
        "O(n^2 d)",
        "O(1)",
        "O(1)",
        lambda n, d, _: n * n * d,
        lambda n, d: attention_flops(n, d).total,
        lambda distance: 1,
        n_projections=4,
    ),
    "restricted attention": _Family(
        windowed,
        "O(r n d)",
        "O(1)",
        "O(n / r)",
        lambda n, d, r: r * n * d,
        lambda n, d: _blocked_flops(n, d),
        lambda distance: math.ceil(distance / WINDOW),
        reach=WINDOW,
        n_projections=4,
    ),
}

# The same layers with another k and another r.
_OTHER_REACHES: dict[str, tuple[int, Callable[[int], nn.Module]]] = {
    "convolution": (5, lambda d: convolutional(d, kernel=5)),
    "restricted attention": (4, lambda d: BlockedAttentionLayer(d, window=4)),
}
_PRODUCTS = "self-attention without its projections"


def _blocked_flops(n: int, d: int) -> int:
    """Projections, and three blocks of r positions for each of the ceil(n / r) blocks."""
    n_blocks = -(-n // WINDOW)
    return 8 * n * d * d + 4 * n_blocks * WINDOW * 3 * WINDOW * d


def trainings(settings: Settings) -> list[Training]:
    return []


def report(laboratory: Laboratory) -> Findings:
    torch.manual_seed(1)
    counted = {name: counted_flops(_run(family.build, _COUNT_N, _COUNT_D)) for name, family in _FAMILIES.items()}
    expected = {name: family.flops(_COUNT_N, _COUNT_D) for name, family in _FAMILIES.items()}
    steps = {name: [operations(_run(family.build, n, 32)) for n in (32, 64)] for name, family in _FAMILIES.items()}
    paths = {name: _path(family) for name, family in _FAMILIES.items()}
    dilated = path_length(_dilated_stack, _DILATED_N, _PROBE_D, _DILATED_N)
    n_steps = recurrent_steps(_PROBE_N, _PROBE_D)
    by_length = {
        name: [seconds(_run(each.build, n, _D), at_least=_SECONDS) for n in _LENGTHS]
        for name, each in _FAMILIES.items()
    }
    by_length[_PRODUCTS] = [seconds(_products(n, _D), at_least=_SECONDS) for n in _LENGTHS]
    by_width = {
        name: [seconds(_run(each.build, _N, d), at_least=_SECONDS) for d in _WIDTHS] for name, each in _FAMILIES.items()
    }
    in_n = {name: exponent(_LENGTHS[-_LAST:], times[-_LAST:]) for name, times in by_length.items()}
    in_d = {name: exponent(_WIDTHS[-_LAST:], times[-_LAST:]) for name, times in by_width.items()}
    rows: list[list[Cell]] = []
    for name, family in _FAMILIES.items():
        own: list[Cell] = [counted[name], expected[name], steps[name][0], steps[name][1], paths[name]]
        rows.append([name, family.cost, family.sequential, family.path, *own, in_n[name], in_d[name]])
    header = (
        *("layer", "paper, cost", "paper, sequential", "paper, path", "FLOPs counted", "FLOPs by formula"),
        *("operations, n = 32", "n = 64", "layers between the ends", "time: exponent in n", "exponent in d"),
    )
    distance = _PROBE_N - 1
    note = (
        "The chapter's table has the paper's first three rows with the same values, and restricted attention not at "
        "all. The path O(log_k n) is that of dilated convolutions; those whose kernels are contiguous, as in the stack "
        f"that is measured here, have O(n / k): {paths['convolution']} layers between positions {distance} apart, "
        f"where rates of 1, k, k^2 need {dilated} for {_DILATED_N - 1}. FLOPs at n = {_COUNT_N}, d = {_COUNT_D}; k = "
        f"{KERNEL}, r = {WINDOW} to each side, one head. Attention counts its projections, 8 n d^2, too, as its time "
        "does: below n = 2 d they are most of it. Layers between the ends: recurrence joins all positions within its "
        f"one layer, in as many steps as they lie apart. Exponents: the last {_LAST} of n up to {_LENGTHS[-1]} at "
        f"d = {_D}, and of d up to {_WIDTHS[-1]} at n = {_N}."
    )
    layers = {name: family.layers(distance) for name, family in _FAMILIES.items()}
    # Rates 1, k, k^2, … see (k^l - 1) / 2 to each side after l layers.
    layers_dilated = next(count for count in range(1, _DILATED_N) if KERNEL**count >= 2 * (_DILATED_N - 1) + 1)
    verdicts = [
        exactly(
            "CH-121",
            "recurrence takes operations one after the other for every position, the others do not",
            all((steps[name][1] > steps[name][0]) == (name == "recurrence") for name in _FAMILIES),
            ", ".join(f"{name} {short} and {long}" for name, (short, long) in steps.items()) + " for n = 32 and 64",
        ),
        exactly(
            "CH-122",
            "paths between positions i and j: |i - j| steps of recurrence, 2 |i - j| / (k - 1) convolutions, about "
            "log_k (2 |i - j|) dilated ones, one attention",
            paths == layers and dilated == layers_dilated and n_steps == distance,
            ", ".join(f"{name} {found}" for name, found in paths.items())
            + f" layers across {distance} positions; dilated convolution {dilated} across {_DILATED_N - 1}; within its "
            f"one layer recurrence takes {n_steps} steps",
        ),
        _receptive_fields(),
        cost_verdict(flop_multiples(), in_n),
        _crossing(),
        exactly(
            "CH-124",
            "n^2 d and n d^2 are close at n = 50 and d = 512, as the chapter has it",
            0.5 < 512 / 50 < 2,
            f"they differ {512 / 50:.2f} times; at n = 4096 n^2 d is {4096 / 512:.0f} times as large",
        ),
    ]
    return Findings(
        verdicts,
        [
            Table("layers", "Formula beside counter beside stopwatch", header, rows, note),
            _times("by-length", f"Milliseconds by n, d = {_D}", "n", _LENGTHS, by_length),
            _times("by-width", f"Milliseconds by d, n = {_N}", "d", _WIDTHS, by_width),
        ],
        [_picture(by_length)],
    )


def _run(build: Callable[[int], nn.Module], n: int, d: int) -> Callable[[], object]:
    layer, x = build(d), torch.randn(1, n, d)
    return lambda: layer(x)


def _products(n: int, d: int) -> Callable[[], object]:
    """Attention from its queries, keys and values to the weighted sums: all that grows with n^2."""
    attention = SelfAttentionLayer(d).attention
    with torch.no_grad():
        queries, memory = attention.project_all(torch.randn(1, n, d))
    return lambda: attention.context(queries, memory.keys, memory.values, None, need_weights=False)


def flop_multiples() -> dict[str, list[float]]:
    """How many times its leading term each layer's FLOPs are, as counted and without the projections of attention: one
    number, if they are so many at all n and d, and with another k or r too.
    """
    found = {}
    for name, family in _FAMILIES.items():
        others = [_OTHER_REACHES[name]] if name in _OTHER_REACHES else []
        found[name] = {
            (counted_flops(_run(build, n, d)) - 2 * family.n_projections * n * d * d) / family.term(n, d, reach)
            for reach, build in [(family.reach, family.build), *others]
            for n in _COUNT_NS
            for d in _COUNT_DS
        }
    return {name: sorted(multiples) for name, multiples in found.items()}


def _path(family: _Family) -> int | None:
    def stack(n_layers: int) -> nn.Module:
        return nn.Sequential(*[family.build(_PROBE_D).double() for _ in range(n_layers)])

    return path_length(stack, _PROBE_N, _PROBE_D, _PROBE_N)


def _dilated_stack(n_layers: int) -> nn.Module:
    """Convolutions whose rates grow with the power of the kernel."""
    return nn.Sequential(*[convolutional(_PROBE_D, KERNEL**level).double() for level in range(n_layers)])


def _receptive_fields() -> Verdict:
    """Stacks of l convolutions of kernel k whose rates are all 1, the powers of k, or the powers of 2 as in ByteNet."""
    found: dict[str, list[int]] = {"rate 1": [], "rates k^i": [], "rates 2^i": []}
    expected: dict[str, list[int]] = {name: [] for name in found}
    for k, n_layers in _FIELDS:
        rates = {"rate 1": 1, "rates k^i": k, "rates 2^i": 2}
        fields = (n_layers * (k - 1) + 1, k**n_layers, 1 + (k - 1) * (2**n_layers - 1))
        for (name, rate), field in zip(rates.items(), fields, strict=True):
            stack = [convolutional(_PROBE_D, rate**level, k).double() for level in range(n_layers)]
            found[name].append(receptive_field(nn.Sequential(*stack), field + 4, _PROBE_D))
            expected[name].append(field)
    reason = f"(k, l) = {', '.join(map(str, _FIELDS))}: " + "; ".join(
        f"{name} {', '.join(map(str, fields))}" for name, fields in found.items()
    )
    statement = "l convolutions see l (k - 1) + 1 positions, k^l with rates k^i, 1 + (k - 1) (2^l - 1) with rates 2^i"
    return exactly("CH-123", statement, found == expected, reason)


def cost_verdict(multiples: dict[str, list[float]], in_n: dict[str, float]) -> Verdict:
    """CH-124, from `flop_multiples` and from the exponents of time in n, those of attention's products among them."""
    powers = {"recurrence": 1, "convolution": 1, _PRODUCTS: 2, "restricted attention": 1}
    is_multiple = all(len(each) == 1 for each in multiples.values())
    near = all(abs(in_n[name] - power) <= _MARGIN for name, power in powers.items())
    reason = (
        "FLOPs are these terms "
        + ", ".join(f"{' or '.join(f'{each:g}' for each in found)} times ({name})" for name, found in multiples.items())
        + "; time grows with n to the power of "
        + ", ".join(f"{in_n[name]:.2f} ({name})" for name in powers)
    )
    kernels, windows = ((_FAMILIES[name].reach, other) for name, (other, _) in _OTHER_REACHES.items())
    grid = f"n of {_COUNT_NS}, d of {_COUNT_DS}, k of {kernels} and r of {windows}"
    rule = (
        "shown: the FLOPs as counted, without attention's projections (8 n d^2), are the same multiple of these terms "
        f"at {grid}; and at d = {_D}, n of {_LENGTHS[-_LAST]:,} to {_LENGTHS[-1]:,}, the fitted exponent of time in n "
        f"is within {_MARGIN} of 1, of self-attention without its projections of 2; contradicted: the FLOPs are not; "
        "otherwise not shown"
    )
    outcome: Outcome = "contradicted" if not is_multiple else "shown" if near else "not shown"
    statement = "layers cost n d^2, k n d^2, n^2 d, r n d, beside the projections of attention"
    return Verdict("CH-124", statement, outcome, reason, rule)


def _crossing() -> Verdict:
    """From which length on attention takes as many FLOPs as recurrence."""
    lengths = range(1, 4 * _D)
    stages = {n: attention_flops(n, _D) for n in lengths}
    reached = next(n for n in lengths if stages[n].scores + stages[n].weighted_sum >= recurrent_flops(n, _D))
    cheaper = [n for n in lengths if stages[n].total < recurrent_flops(n, _D)]
    projected = f"up to n = {cheaper[-1]}" if cheaper else "at no n: its projections alone are more than the recurrence"
    return exactly(
        "CH-124",
        "attention is cheaper than recurrence while n is less than d",
        reached == _D,
        f"FLOPs by formula, d = {_D}: the products of attention reach the recurrence's at n = {reached}; with its "
        f"projections attention is cheaper {projected}",
    )


def _times(name: str, title: str, what: str, sizes: tuple[int, ...], found: dict[str, list[float]]) -> Table:
    rows: list[list[Cell]] = [
        [size, *(1000 * times[place] for times in found.values())] for place, size in enumerate(sizes)
    ]
    return Table(name, title, (what, *found), rows, "Without gradients; the least of several calls.")


def _picture(found: dict[str, list[float]]) -> Picture:
    lines = {
        name: [Point(n, 1000 * took) for n, took in zip(_LENGTHS, times, strict=True)] for name, times in found.items()
    }
    ticks = {float(n): str(n) for n in _LENGTHS}
    figure = line_figure(lines, x_label="n", y_label="milliseconds", x_scale="log", y_scale="log", x_ticks=ticks)
    return Picture("by-length", f"Time of one layer by n, d = {_D}", figure)
