"""Table 1-5: the attention matrix grows with the square of the length, in numbers, time and memory."""

from __future__ import annotations

import torch

from mtkit.analyze.attention_cost import Cost, attend, attention_cost
from mtkit.analyze.complexity import (
    AttentionStages,
    attention_flops,
    counted_flops,
    exponent,
    feed_forward_flops,
    seconds,
)
from mtkit.analyze.layers import SelfAttentionLayer
from mtkit.evaluate.charts import Point, line_figure
from mtkit.models.transformer import Config, FeedForward
from mtkit.nn.attention import MultiHeadAttention, attention_weights, weighted_sum
from mtkit.reproduce.findings import Cell, Findings, Picture, Table
from mtkit.reproduce.laboratory import Laboratory
from mtkit.reproduce.study import Settings, Training
from mtkit.reproduce.verdict import Verdict, exactly

TITLE = "Table 1-5: growth of the attention matrix"
SUBJECT = (
    "Numbers in the n x n matrix of one head, beside the time and the memory of attention on this machine: with the "
    "matrix held whole, and with torch's fused kernel, which goes block by block and never holds it."
)
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384, 32768)
_LONGEST_WHOLE = 16384  # beyond it the matrix alone takes gigabytes
_SLOPE_LENGTHS = (4096, 8192, 16384)  # long enough for the matrix to be most of the time and of the memory
_CHAPTER = {512: "2.6e5", 1024: "1.0e6", 2048: "4.2e6", 8192: "6.7e7", 32768: "1.1e9"}
_RATIO_LENGTHS = (50, 100, 150, 200, 512, 1024, 2048, 4096)
_D_MODEL = 512
_SLOPE_MARGIN = 0.3
_COMPARED, _D_HEAD = 1024, 64
_COUNTED = (48, 128, 16)  # n, d, d_k: short enough for plain products, which the counter sees
_LAYER_LENGTHS = (512, 1024, 2048, 4096)
_ROUNDING = 1e-5


def trainings(settings: Settings) -> list[Training]:
    return []


def report(laboratory: Laboratory) -> Findings:
    whole = {n: attention_cost(n, "whole") for n in LENGTHS if n <= _LONGEST_WHOLE}
    blocks = {n: attention_cost(n, "blocks") for n in LENGTHS}
    rows: list[list[Cell]] = []
    for n in LENGTHS:
        held = whole.get(n)
        rows.append(
            [
                n,
                _CHAPTER.get(n),
                n * n,
                (n // LENGTHS[0]) ** 2,
                n * n * 4 / 2**20,
                None if held is None else 1000 * held.seconds,
                None if held is None else held.peak_mib,
                1000 * blocks[n].seconds,
                blocks[n].peak_mib,
            ]
        )
    header = (
        *("n", "chapter, numbers", "numbers", "relative", "MiB in fp32", "whole, ms", "whole, peak MiB"),
        *("blocks, ms", "blocks, peak MiB"),
    )
    note = (
        "One head of width 64, one sentence, fp32, the least of several calls; peaks are memory of one call beyond "
        "what the process, with the inputs, held before: the products and the weights that the softmax makes of them "
        "are two matrices."
    )
    slope = exponent(_SLOPE_LENGTHS, [whole[n].seconds for n in _SLOPE_LENGTHS])
    memory = exponent(_SLOPE_LENGTHS, [whole[n].peak_mib for n in _SLOPE_LENGTHS])
    saved = whole[_LONGEST_WHOLE].peak_mib / max(1.0, blocks[_LONGEST_WHOLE].peak_mib)
    apart = _largest_difference(_COMPARED)
    crossing = next(
        n for n in range(1, 10_000) if attention_flops(n, _D_MODEL).total >= feed_forward_flops(n, _D_MODEL)
    )
    verdicts = [
        _slopes("CH-74", "attention takes time and memory of the order n^2", {"time": slope, "memory": memory}),
        _counted_totals(),
        _counted_stages(),
        _doubling(slope),
        Verdict(
            "CH-91",
            "attention block by block takes far less memory for the same result",
            "shown" if saved > 4 and apart < _ROUNDING else "not shown",
            f"at n = {_LONGEST_WHOLE} the whole matrix takes {saved:.0f} times the memory of the blocks; results "
            f"differ by {apart:.1e} at most at n = {_COMPARED}",
            f"shown: more than four times as much memory with the matrix held whole, results within {_ROUNDING}",
        ),
        exactly(
            "CH-89",
            "attention costs as much as the feed-forward block at n = 2 d",
            crossing == 2 * _D_MODEL,
            f"8 n d^2 + 4 n^2 d reaches 16 n d^2 at n = {crossing} for d = {_D_MODEL}; the chapter's 'about equal at "
            f"100 to 200' is {_ratio(100):.2f} to {_ratio(200):.2f}",
        ),
    ]
    ratios: list[list[Cell]] = [
        [n, *attention_flops(n, _D_MODEL), feed_forward_flops(n, _D_MODEL), _ratio(n)] for n in _RATIO_LENGTHS
    ]
    ratio_header = ("n", "Q, K, V", "scores", "weighted sum", "output", "feed-forward", "attention / feed-forward")
    return Findings(
        verdicts,
        [
            Table("growth", "The matrix, its time and its memory", header, rows, note),
            Table("stages", f"FLOPs of one layer by stage, d = {_D_MODEL}", ratio_header, ratios),
        ],
        [*_pictures(whole, blocks), _stage_picture()],
    )


def _counted_totals() -> Verdict:
    """FLOPs of one head before the output projection, and of all of them with it, as torch counts them."""
    n, d, d_k = _COUNTED
    layer = SelfAttentionLayer(d, d // d_k)
    x = torch.zeros(1, n, d)
    whole = counted_flops(lambda: layer(x))
    single = (whole - counted_flops(lambda: layer.attention.output(x))) // (d // d_k)
    holds = single == 6 * n * d * d_k + 4 * n**2 * d_k and whole == 8 * n * d**2 + 4 * n**2 * d
    reason = f"counted at n = {n}, d = {d}, d_k = {d_k}: {single:,} FLOPs a head, {whole:,} all heads with W^O"
    return exactly("CH-87", "one head costs 6 n d d_k + 4 n^2 d_k, all of them 8 n d^2 + 4 n^2 d", holds, reason)


def _counted_stages() -> Verdict:
    n, d, d_k = _COUNTED
    attention, x = MultiHeadAttention(d, d // d_k), torch.zeros(1, n, d)
    queries, memory = attention.project_all(x)
    weights = attention_weights(queries, memory.keys, None)
    found = AttentionStages(
        counted_flops(lambda: attention.project_all(x)),
        counted_flops(lambda: attention_weights(queries, memory.keys, None)),
        counted_flops(lambda: weighted_sum(weights, memory.values)),
        counted_flops(lambda: attention.output(x)),
    )
    reason = f"counted at n = {n}, d = {d}: " + ", ".join(
        f"{name.replace('_', ' ')} {flops:,}" for name, flops in found._asdict().items()
    )
    statement = "Q, K and V cost 6 n d^2, scores 2 n^2 d, the weighted sum 2 n^2 d, the output 2 n d^2"
    return exactly("CH-88", statement, found == attention_flops(n, d), reason)


def _doubling(square: float) -> Verdict:
    """The n^2 terms alone, by their fitted exponent, beside attention with its projections and a feed-forward block."""
    attention = SelfAttentionLayer(_D_MODEL, _D_MODEL // _D_HEAD)
    feed_forward = FeedForward(Config(d_model=_D_MODEL, d_ff=4 * _D_MODEL))
    inputs = {n: torch.randn(1, n, _D_MODEL) for n in _LAYER_LENGTHS}
    times = [seconds(lambda x=x: feed_forward(attention(x)), at_least=0.5) for x in inputs.values()]  # type: ignore[misc]
    layer = exponent(_LAYER_LENGTHS, times)
    first, last = _LAYER_LENGTHS[0], _LAYER_LENGTHS[-1]
    return Verdict(
        "CH-90",
        "doubling n makes the n^2 terms four times as dear, and a whole layer two to four times",
        "shown" if abs(square - 2) <= _SLOPE_MARGIN and 1 < layer < 2 else "not shown",
        f"each doubling of n takes {2**square:.2f} times as long for the n^2 terms (one head, the matrix held whole, n "
        f"of {_SLOPE_LENGTHS[0]:,} to {_SLOPE_LENGTHS[-1]:,}) and {2**layer:.2f} times for attention, block by block, "
        f"with its projections and a feed-forward block (d = {_D_MODEL}, n of {first:,} to {last:,})",
        f"shown: the fitted exponent of the n^2 terms' time within {_SLOPE_MARGIN} of 2, that of the layer between 1 "
        "and 2",
    )


def _largest_difference(n: int) -> float:
    """Between the results of both methods, random vectors of the width of one head."""
    torch.manual_seed(1)
    tensors = torch.randn(3, 1, 1, n, _D_HEAD).unbind(0)
    return (attend(tensors, "whole") - attend(tensors, "blocks")).abs().max().item()


def _ratio(n: int) -> float:
    return attention_flops(n, _D_MODEL).total / feed_forward_flops(n, _D_MODEL)


def _slopes(claim: str, statement: str, slopes: dict[str, float]) -> Verdict:
    reason = ", ".join(f"{name} grows with n to the power of {slope:.2f}" for name, slope in slopes.items())
    near = all(abs(slope - 2) <= _SLOPE_MARGIN for slope in slopes.values())
    first, last = _SLOPE_LENGTHS[0], _SLOPE_LENGTHS[-1]
    rule = f"shown: fitted exponents within {_SLOPE_MARGIN} of 2 for n of {first:,} to {last:,}, the matrix held whole"
    return Verdict(claim, statement, "shown" if near else "not shown", reason, rule)


def _pictures(whole: dict[int, Cost], blocks: dict[int, Cost]) -> list[Picture]:
    """Time and memory against the length, each beside a square."""
    first = LENGTHS[0]
    ticks = {float(n): f"{n:,}" for n in LENGTHS}
    drawn = {
        "time": ("milliseconds", lambda cost: 1000 * cost.seconds),
        "memory": ("MiB at the peak", lambda cost: cost.peak_mib),
    }
    pictures = []
    for name, (unit, value) in drawn.items():
        lines = {
            "matrix held whole": [Point(n, value(cost)) for n, cost in whole.items()],
            "block by block": [Point(n, value(cost)) for n, cost in blocks.items()],
            "n^2": [Point(n, value(whole[first]) * (n / first) ** 2) for n in LENGTHS],
        }
        figure = line_figure(lines, x_label="n", y_label=unit, x_scale="log", y_scale="log", x_ticks=ticks)
        pictures.append(Picture(name, f"{name.capitalize()} of one head's attention (the n^2 term alone)", figure))
    return pictures


def _stage_picture() -> Picture:
    lengths = [2**power for power in range(4, 13)]
    stages = {n: attention_flops(n, _D_MODEL) for n in lengths}
    lines = {
        "Q, K, V and output: 8 n d^2": [Point(n, each.projections + each.output) for n, each in stages.items()],
        "scores and weighted sum: 4 n^2 d": [Point(n, each.scores + each.weighted_sum) for n, each in stages.items()],
        "the whole of attention": [Point(n, each.total) for n, each in stages.items()],
        "feed-forward: 16 n d^2": [Point(n, feed_forward_flops(n, _D_MODEL)) for n in lengths],
    }
    ticks = {float(n): f"{n:,}" for n in lengths}
    figure = line_figure(lines, x_label="n", y_label="FLOPs", x_scale="log", y_scale="log", x_ticks=ticks)
    caption = (
        f"At n = 2 d = {2 * _D_MODEL:,} the n^2 terms reach the projections, and attention the feed-forward block."
    )
    return Picture("stages", f"FLOPs by stage, d = {_D_MODEL}", figure, caption)
