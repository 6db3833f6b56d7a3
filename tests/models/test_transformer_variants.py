"""The Transformer's variants: shared keys and values, windows, positions, and what an ablation takes away."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from mtkit.models import Memory, Step, select_rows
from mtkit.models.transformer import PRESETS, Config, EncoderLayer, Model
from mtkit.nn.attention import LatentAttention
from mtkit.nn.masks import causal_mask, far_mask

PAD, BOS, EOS = 0, 2, 3
V = 11
SIZES: dict[str, Any] = {
    "d_model": 32,
    "d_ff": 24,
    "n_heads": 8,
    "n_layers": 2,
    "dropout": 0.0,
}
D_HEAD = 4
KINDS = ("mha", "gqa", "mqa", "mla")


def build(**changes: object) -> Model:
    """Every weight moved off its first value, so that no zero hides a term that is left out."""
    torch.manual_seed(3)
    latent = {"d_latent": 12} if changes.get("kv") == "mla" else {}
    model = Model(Config(**{**SIZES, **latent, **changes}), V, V, PAD)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


def batch() -> tuple[Tensor, Tensor, Tensor]:
    """Two pairs of unequal length: src, src_pad_mask, trg_in."""
    src = torch.tensor([[4, 5, 6, 7, 9, 4, EOS], [8, 9, EOS, PAD, PAD, PAD, PAD]])
    trg_in = torch.tensor([[BOS, 5, 4, 10, 7, 6], [BOS, 6, 6, 8, 4, 5]])
    return src, src == PAD, trg_in


def run_steps(model: Model, memory: Memory, trg_in: Tensor) -> list[Step]:
    steps: list[Step] = []
    for prev in trg_in.unbind(1):
        steps.append(model.step(prev, steps[-1].state if steps else model.start(memory), memory))
    return steps


def n_bytes(tree: Any) -> int:
    if isinstance(tree, Tensor):
        return tree.numel() * tree.element_size()
    return sum(map(n_bytes, tree)) if isinstance(tree, tuple) else 0


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


# Keys and values


@pytest.mark.parametrize(
    ("kind", "per_token"),
    [("mha", 2 * 8 * D_HEAD), ("gqa", 2 * 2 * D_HEAD), ("mqa", 2 * D_HEAD), ("mla", 12)],
)
def test_the_cache_holds_no_more_than_the_kind_of_attention_needs(kind: str, per_token: int) -> None:
    """CH-85: bytes of the state and of the memory, 4 for each number; h = 8, g = 2, d_k = 4, d_c = 12."""
    model = build(kv=kind)
    src, src_pad_mask, trg_in = batch()
    memory = model.encode(src, src_pad_mask)
    assert n_bytes(memory.cache) == 4 * 2 * src.numel() * per_token
    assert n_bytes(model.start(memory)) == 0
    for length, step in enumerate(run_steps(model, memory, trg_in), 1):
        assert n_bytes(step.state) == 4 * 2 * len(src) * length * per_token


@pytest.mark.parametrize(("n_groups", "kind"), [(8, "mha"), (1, "mqa")])
def test_grouped_attention_lies_between_one_group_and_a_group_for_each_head(n_groups: int, kind: str) -> None:
    """CH-85: g = h is MHA, g = 1 is MQA, with the same weights."""
    reference = build(kv=kind)
    model = build(kv="gqa", n_kv_groups=n_groups)
    torch.manual_seed(8)
    weights = {name: torch.randn_like(tensor) / 4 for name, tensor in reference.state_dict().items()}
    reference.load_state_dict(weights)
    model.load_state_dict(weights)
    assert torch.equal(model(*batch()), reference(*batch()))


@pytest.mark.parametrize("kind", KINDS)
def test_kinds_of_keys_concern_the_decoder_alone(kind: str) -> None:
    """As in Ainslie et al. (2023), §2: the encoder reads all at once, no cache slows it down."""
    model = build(kv=kind)
    assert {layer.self_attention.n_groups for layer in model.encoder} == {8}
    assert not any(isinstance(layer.self_attention, LatentAttention) for layer in model.encoder)
    assert {name.split(".")[0] for name in changed_names(kind)} <= {"decoder"}


def changed_names(kind: str) -> set[str]:
    """Parameters of another shape than in a model of the default kind, or that only one of the two has."""
    shapes = [{(n, p.shape) for n, p in build(kv=each).named_parameters()} for each in (kind, "mha")]
    return {name for name, _ in shapes[0] ^ shapes[1]}


@pytest.mark.parametrize(
    ("changes", "saved"),
    [
        ({"kv": "gqa", "n_kv_groups": 2}, 12 * 2 * (512 * 512 + 512) * 6 // 8),
        ({"kv": "gqa", "n_kv_groups": 8}, 0),
        ({"kv": "mqa"}, 12 * 2 * (512 * 512 + 512) * 7 // 8),
        # The latent has 3 d d_c weights instead of the 2 d^2 + 2 d of keys and values.
        ({"kv": "mla", "d_latent": 128}, 12 * (2 * (512 * 512 + 512) - 3 * 512 * 128)),
    ],
)
def test_parameters_that_sharing_saves(changes: dict[str, Any], saved: int) -> None:
    """CH-85, CH-113: of the base model, twelve attentions of the decoder."""
    with torch.device("meta"):
        model = Model(Config(**{**PRESETS["base"].model_dump(), **changes}), 37_000, 37_000, PAD)
    assert count(model) == 44_138_496 + 512 * 37_000 - saved


@pytest.mark.parametrize(("d_key", "printed"), [(16, 58), (32, 60)])
def test_narrow_keys_save_what_the_papers_table_says(d_key: int, printed: int) -> None:
    """CH-81: Table 3, rows B; 18 attentions have 2 h (64 - d_k) fewer columns with biases. The paper prints millions,
    and 65 for base, whose vocabulary must be larger than the one that it states.
    """
    saved = 18 * 2 * 8 * (64 - d_key) * (512 + 1)
    with torch.device("meta"):
        base, narrow = (
            Model(Config(**{**PRESETS["base"].model_dump(), "d_key": width}), 37_000, 37_000, PAD)
            for width in (None, d_key)
        )
    assert count(base) - count(narrow) == saved
    assert round(65 - saved / 1e6) == printed


# Windows


def test_a_window_as_long_as_the_sentence_changes_nothing() -> None:
    """CH-92"""
    expected = build()(*batch())
    found = build(window=6)(*batch())
    real = ~batch()[1]
    assert torch.allclose(found, expected, rtol=0, atol=1e-5)
    states = [build(**changes).encode(*batch()[:2]).states[real] for changes in ({}, {"window": 6})]
    assert torch.allclose(*states, rtol=0, atol=1e-5)
    assert not torch.allclose(build(window=2)(*batch()), expected, rtol=0, atol=1e-3)


def test_far_mask_by_hand() -> None:
    expected = [[0, 0, 1, 1], [0, 0, 0, 1], [1, 0, 0, 0], [1, 1, 0, 0]]
    assert far_mask(4, 1).int().tolist() == expected
    assert far_mask(4, 2).sum() == 2
    assert not far_mask(4, 3).any()


def slopes_of_layers(model: Model, length: int) -> Tensor:
    """[length, length]: how much encoder state i depends on source position j."""
    embedded: list[Tensor] = []
    handle = model.src_positions.register_forward_hook(lambda _module, _inputs, output: embedded.append(output))
    src = torch.arange(length)[None] % 7 + 4
    states = model.encode(src, torch.zeros_like(src, dtype=torch.bool)).states[0]
    handle.remove()
    upstream = torch.randn(states.size(1), generator=torch.Generator().manual_seed(1))
    rows = [torch.autograd.grad(row @ upstream, embedded[0], retain_graph=True)[0][0] for row in states]
    return torch.stack(rows).norm(dim=-1)


@pytest.mark.parametrize(("window", "n_layers"), [(1, 1), (1, 3), (2, 2), (3, 2)])
def test_a_windowed_encoder_reaches_as_far_as_window_times_layers(window: int, n_layers: int) -> None:
    """CH-92: paths of length n / r; by gradients. CH-72: without a window one layer reaches all."""
    length = 10
    positions = torch.arange(length)
    reach = (positions[:, None] - positions).abs() <= window * n_layers
    assert torch.equal(slopes_of_layers(build(window=window, n_layers=n_layers), length) > 0, reach)
    assert slopes_of_layers(build(n_layers=1), length).min() > 0


def test_a_windowed_decoder_sees_the_window_before_it() -> None:
    """CH-92, CH-108: one layer's output t depends on target tokens t - window to t."""
    model = build(window=2, n_layers=1)
    src, src_pad_mask, trg_in = batch()
    before = model(src, src_pad_mask, trg_in)
    for position in range(trg_in.size(1)):
        changed = trg_in.clone()
        changed[:, position] = 9
        moved = (model(src, src_pad_mask, changed) - before).abs().amax((0, 2)) > 1e-6
        assert moved.nonzero().flatten().tolist() == [t for t in range(6) if position <= t <= position + 2]


@pytest.mark.parametrize("kind", KINDS)
def test_steps_with_a_window_give_what_teacher_forcing_gives_and_keep_the_window_alone(kind: str) -> None:
    """CH-92, CH-109"""
    window = 2
    model = build(window=window, kv=kind)
    src, src_pad_mask, trg_in = batch()
    expected = model(src, src_pad_mask, trg_in)
    memory = model.encode(src, src_pad_mask)
    for position, step in enumerate(run_steps(model, memory, trg_in)):
        assert torch.allclose(step.logits, expected[:, position], rtol=0, atol=1e-5)
        kept = {part.size(2) for pair in step.state.layers for part in pair}
        assert kept == {min(position + 1, window + 1)}
        assert step.state.read.shape == (2, position + 1, 0)
        assert select_rows(step.state, torch.tensor([1, 1, 0])).read.shape == (3, position + 1, 0)


def test_a_step_with_a_window_costs_the_window_however_long_the_translation() -> None:
    """CH-92: n steps cost n w where those of full attention cost n^2; 4 d operations for each key and layer."""
    src, src_pad_mask, _ = batch()
    long = torch.full((2, 20), 5)

    def flops(**changes: object) -> list[int]:
        model = build(**changes)
        memory = model.encode(src, src_pad_mask)
        state, found = model.start(memory), []
        for prev in long.unbind(1):
            with FlopCounterMode(display=False) as counter:
                state = model.step(prev, state, memory).state
            found.append(counter.get_total_flops())
        return found

    a_key = 2 * 2 * 4 * SIZES["d_model"]  # rows, layers
    full, windowed = flops(), flops(window=3)
    assert np.diff(full).tolist() == [a_key] * 19
    assert np.diff(windowed).tolist() == [a_key] * 3 + [0] * 16
    assert windowed[0] == full[0]


def test_pairs_that_a_window_leaves() -> None:
    """CH-92: n (2w + 1) - w (w + 1) of n^2 pairs, of those that a decoder sees n (w + 1) - w (w + 1) / 2."""
    for n, w in ((10, 1), (10, 3), (50, 4)):
        assert (~far_mask(n, w)).sum() == n * (2 * w + 1) - w * (w + 1)
        assert (~(far_mask(n, w) | causal_mask(n))).sum() == n * (w + 1) - w * (w + 1) // 2


def test_padding_far_from_any_word_stays_finite() -> None:
    """A position that may look at nothing would be NaN, and so would every gradient."""
    model = build(window=1).train()
    src = torch.tensor([[4, 5, 6, 7, 8, EOS], [EOS, PAD, PAD, PAD, PAD, PAD]])
    logits = model(src, src == PAD, torch.tensor([[BOS, 5], [BOS, 6]]))
    assert logits.isfinite().all()
    logits.square().sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters() if parameter.grad is not None)


# Positions


def test_learned_positions_of_source_and_target_are_two_tables() -> None:
    model = build(positions="learned", max_positions=9)
    assert count(model) == count(build()) + 2 * 9 * SIZES["d_model"]
    src, src_pad_mask, trg_in = batch()
    states, logits = model.encode(src, src_pad_mask).states, model(src, src_pad_mask, trg_in)
    with torch.no_grad():
        model.trg_positions.table.weight[3].neg_()
    moved = (model(src, src_pad_mask, trg_in) - logits).abs().amax((0, 2)) > 1e-6
    assert moved.tolist() == [False] * 3 + [True] * 3
    assert torch.equal(model.encode(src, src_pad_mask).states, states)
    with torch.no_grad():
        model.src_positions.table.weight[3].neg_()
    assert not torch.allclose(model.encode(src, src_pad_mask).states[0], states[0], rtol=0, atol=1e-3)


def test_a_sentence_longer_than_the_learned_positions_is_read() -> None:
    """Positions from the last on are one: the encoder cannot tell their order, that of the others it can."""
    model = build(positions="learned", max_positions=3)
    src = torch.tensor([[4, 5, 6, 7, 8]])
    no_padding = torch.zeros(1, 5, dtype=torch.bool)
    states = model.encode(src, no_padding).states
    for order, blind in (([0, 1, 4, 2, 3], True), ([1, 0, 2, 3, 4], False)):
        found = model.encode(src[:, order], no_padding).states
        assert torch.allclose(found, states[:, order], rtol=0, atol=1e-5) == blind


@pytest.mark.parametrize(("positions", "blind"), [("none", True), ("sinusoidal", False), ("learned", False)])
def test_only_positions_tell_an_encoder_of_order(positions: str, blind: bool) -> None:
    """CH-60"""
    model = build(positions=positions)
    src, order = torch.tensor([[4, 5, 6, 7]]), torch.tensor([2, 0, 3, 1])
    no_padding = torch.zeros(1, 4, dtype=torch.bool)
    found = model.encode(src[:, order], no_padding).states
    expected = model.encode(src, no_padding).states[:, order]
    assert torch.allclose(found, expected, rtol=0, atol=1e-5) == blind


def test_a_decoder_without_positions_knows_order_through_its_mask() -> None:
    model = build(positions="none")
    src, src_pad_mask, trg_in = batch()
    swapped = trg_in[:, [0, 2, 1, 3, 4, 5]]
    found, before = (model(src, src_pad_mask, tokens) for tokens in (swapped, trg_in))
    assert not torch.allclose(found[0, 1], before[0, 1], rtol=0, atol=1e-3), "only what stands before is seen"
    assert not torch.allclose(found[0, -1], before[0, -1], rtol=0, atol=1e-4)


# What an ablation takes away


def test_the_scale_is_left_out_everywhere_or_nowhere() -> None:
    """CH-65: a model without it equals one with it whose queries are sqrt(d_k) = 2 times as long."""
    for kind in KINDS:
        scaled, unscaled = build(kv=kind), build(kv=kind, scaled=False)
        assert not torch.allclose(unscaled(*batch()), scaled(*batch()), rtol=0, atol=1e-3)
        with torch.no_grad():
            for name, parameter in scaled.named_parameters():
                if ".query." in name:
                    parameter.mul_(2)
        assert torch.allclose(unscaled(*batch()), scaled(*batch()), rtol=0, atol=1e-4)


def attended(layer: EncoderLayer, x: Tensor) -> Tensor:
    queries, memory = layer.self_attention.project_all(x)
    return layer.self_attention.attend(queries, memory, None)[0]


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize("layer_norm", [True, False])
def test_a_layer_is_its_blocks_with_what_stands_around_them(norm: str, residual: bool, layer_norm: bool) -> None:
    """CH-107, and what CH-106 takes away"""
    torch.manual_seed(2)
    layer = EncoderLayer(Config(**SIZES, norm=norm, residual=residual, layer_norm=layer_norm)).eval()
    x = torch.randn(2, 5, 32)
    expected = x
    for block, around in (
        (lambda y: attended(layer, y), layer.around_self_attention),
        (layer.feed_forward, layer.around_feed_forward),
    ):

        def normalised(y: Tensor) -> Tensor:
            return F.layer_norm(y, (32,)) if layer_norm else y

        given = block(normalised(expected) if norm == "pre" else expected)
        total = expected + given if residual else given
        expected = normalised(total) if norm == "post" else total
        assert isinstance(around.norm, nn.LayerNorm) == layer_norm
    found = layer(x, torch.zeros(2, 1, 1, 5, dtype=torch.bool))
    assert torch.allclose(found, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("norm", "n_norms"), [("post", 2 * (2 + 3)), ("pre", 2 * (2 + 3) + 2)])
def test_without_layer_normalisation_its_parameters_are_gone(norm: str, n_norms: int) -> None:
    """CH-115: two for each column; a pre-norm stack has one more at its end."""
    with_norm, without = build(norm=norm), build(norm=norm, layer_norm=False)
    assert count(with_norm) - count(without) == n_norms * 2 * SIZES["d_model"]
    assert not any(isinstance(module, nn.LayerNorm) for module in without.modules())


def test_without_residual_sums_the_parameters_are_the_same() -> None:
    with_sums, without = build(), build(residual=False)
    without.load_state_dict(with_sums.state_dict())
    assert not torch.allclose(without(*batch()), with_sums(*batch()), rtol=0, atol=1e-3)


@pytest.mark.parametrize("n_heads", [1, 4, 16, 32])
def test_any_number_of_heads_that_divides_the_width_can_be_had(n_heads: int) -> None:
    """CH-78"""
    model = build(n_heads=n_heads)
    assert count(model) == count(build())
    src, src_pad_mask, trg_in = batch()
    steps = run_steps(model, model.encode(src, src_pad_mask), trg_in)
    logits = torch.stack([step.logits for step in steps], 1)
    assert torch.allclose(logits, model(src, src_pad_mask, trg_in), rtol=0, atol=1e-5)


def test_the_default_variant_has_these_parameters_and_no_others() -> None:
    """Saved models are read by these names."""
    layer = {
        f"{block}.{part}"
        for block in ("self_attention.query", "self_attention.key_value", "self_attention.output")
        + ("around_self_attention.norm", "feed_forward.inner", "feed_forward.outer", "around_feed_forward.norm")
        for part in ("weight", "bias")
    }
    cross = {
        name.replace("self_attention", "cross_attention") for name in layer if not name.startswith(("feed", "around_f"))
    }
    expected = {f"{side}_norm.{part}" for side in ("encoder", "decoder") for part in ("weight", "bias")}
    expected |= {"src_embedding.weight", "trg_embedding.weight", "output.weight"}
    expected |= {f"encoder.{n}.{name}" for n in (0, 1) for name in layer}
    expected |= {f"decoder.{n}.{name}" for n in (0, 1) for name in layer | cross}
    assert set(build().state_dict()) == expected
