"""ConvS2S against the equations of its paper, and its stacked variant without attention."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from mtkit.checkpoint import copy_weights, unique_tensors
from mtkit.models.convs2s import PRESETS, Block, Config, Embedding, Model
from mtkit.models.convs2s import MultiStepAttention as Attention
from mtkit.nn.dropout import Dropout

PAD, BOS, EOS = 0, 2, 3
V = 11
SIZES = {
    "d_embedding": 6,
    "encoder_widths": (8, 10),
    "decoder_widths": (7, 9, 9),
    "decoder_kernels": (3, 2, 1),
    "max_positions": 8,
    "dropout": 0.0,
}
STACKED = {**SIZES, "attention": "none", "unfold": 1.5, "max_positions": 0}


def build(**changes: object) -> Model:
    """In float64, no parameter at a special value."""
    torch.manual_seed(3)
    model = Model(Config(**{**SIZES, **changes}), V, V, PAD).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
        for embedding in (model.src_embedding, model.trg_embedding):
            embedding.tokens.weight[PAD].zero_()
    return model.eval()


def batch() -> tuple[Tensor, Tensor, Tensor]:
    """Two pairs of unequal length: src, src_pad_mask, trg_in."""
    src = torch.tensor([[4, 5, 6, 7, EOS], [8, 9, EOS, PAD, PAD]])
    trg_in = torch.tensor([[BOS, 5, 4, 10, 7, 9], [BOS, 6, 6, 8, 4, 5]])
    return src, src == PAD, trg_in


def linear(layer: torch.nn.Module, x: np.ndarray) -> np.ndarray:
    assert isinstance(layer, torch.nn.Linear)
    return x @ layer.weight.detach().numpy().T + layer.bias.detach().numpy()


def reference_block(block: Block, x: np.ndarray, *, causal: bool) -> np.ndarray:
    """§3.2 and §3.5 position by position: x [length, d_in]."""
    convolution = block.convolution
    kernel, dilation = convolution.kernel, convolution.dilation
    first = -(kernel - 1) * dilation if causal else -(kernel // 2) * dilation
    rows = []
    for i in range(len(x)):
        inputs = [i + first + step * dilation for step in range(kernel)]
        window = [x[j] if 0 <= j < len(x) else np.zeros(x.shape[1]) for j in inputs]
        a, b = np.split(linear(convolution.linear, np.concatenate(window)), 2)
        rows.append(a / (1 + np.exp(-b)))
    residual = x if isinstance(block.residual, torch.nn.Identity) else linear(block.residual, x)
    return (np.stack(rows) + residual) * math.sqrt(0.5)


def reference_attention(
    attention: Attention, h: np.ndarray, g: np.ndarray, z: np.ndarray, e: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """§3.3: h [trg_len, d], g [trg_len, f], z and e [src_len, f]."""
    d = linear(attention.query, h) + g
    energies = d @ z.T
    exponentials = np.exp(energies - energies.max(axis=1, keepdims=True))
    weights = exponentials / exponentials.sum(axis=1, keepdims=True)
    m = len(z)
    context = m * math.sqrt(1 / m) * (weights @ (z + e))
    return (h + linear(attention.output, context)) * math.sqrt(0.5), weights


def embed(embedding: Embedding, tokens: list[int], last_position: int) -> np.ndarray:
    table = embedding.tokens.weight.detach().numpy()[tokens]
    if embedding.positions is None:
        return table
    positions = [min(position, last_position) for position in range(len(tokens))]
    return table + embedding.positions.weight.detach().numpy()[positions]


def reference_encoder(model: Model, e: np.ndarray) -> np.ndarray:
    x = linear(model.src_input, e)
    for block in model.encoder:
        x = reference_block(block, x, causal=False)
    return linear(model.src_output, x)


def reference(model: Model, src: list[int], trg_in: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Logits [trg_len, V] and the mean attention [trg_len, src_len] of one sentence pair."""
    e, g = embed(model.src_embedding, src, 7), embed(model.trg_embedding, trg_in, 7)
    z = reference_encoder(model, e)
    h = linear(model.trg_input, g)
    attentions = []
    for block, attention in zip(model.decoder, model.attentions, strict=True):
        h, weights = reference_attention(attention, reference_block(block, h, causal=True), g, z, e)
        attentions.append(weights)
    return linear(model.output, linear(model.trg_output, h)), np.mean(attentions, axis=0)


@pytest.mark.parametrize("dilations", [(1,), (2, 3)])
def test_the_model_is_that_of_the_equations(dilations: tuple[int, ...]) -> None:
    model = build(encoder_dilations=dilations)
    src, src_pad_mask, trg_in = batch()
    logits = model(src, src_pad_mask, trg_in).detach().numpy()
    for row, length in enumerate((5, 3)):
        expected, _ = reference(model, src[row, :length].tolist(), trg_in[row].tolist())
        np.testing.assert_allclose(logits[row], expected, rtol=1e-9, atol=1e-11)


def test_the_attention_shown_is_the_mean_over_the_layers() -> None:
    model = build()
    src, src_pad_mask, trg_in = batch()
    memory = model.encode(src, src_pad_mask)
    state, rows = model.start(memory), []
    for prev in trg_in.unbind(1):
        step = model.step(prev, state, memory, need_attention=True)
        state = step.state
        assert step.attention is not None
        rows.append(step.attention)
    found = torch.stack(rows, dim=1).detach().numpy()
    for row, length in enumerate((5, 3)):
        _, expected = reference(model, src[row, :length].tolist(), trg_in[row].tolist())
        np.testing.assert_allclose(found[row, :, :length], expected, rtol=1e-9)
        assert (found[row, :, length:] == 0).all()


@pytest.mark.parametrize("unfold", [1.0, 1.5])
def test_without_attention_target_position_t_reads_encoder_state_t(unfold: float) -> None:
    """The encoder reads on over nothing to ceil(unfold |s|); what is behind reads zeros."""
    model = build(**{**STACKED, "unfold": unfold})
    src, src_pad_mask, trg_in = batch()
    logits = model(src, src_pad_mask, trg_in).detach().numpy()
    for row, length in enumerate((5, 3)):
        n_states = {1.0: length, 1.5: {5: 8, 3: 5}[length]}[unfold]
        e = np.zeros((n_states, 6))
        e[:length] = embed(model.src_embedding, src[row, :length].tolist(), 7)
        z = np.zeros((8, 6))
        z[:n_states] = reference_encoder(model, e)
        h = linear(model.trg_input, embed(model.trg_embedding, trg_in[row].tolist(), 7))
        h = h + linear(model.stacking, z[: len(h)])
        for block in model.decoder:
            h = reference_block(block, h, causal=True)
        expected = linear(model.output, linear(model.trg_output, h))
        np.testing.assert_allclose(logits[row], expected, rtol=1e-9, atol=1e-11)


def test_without_attention_there_is_none_to_show() -> None:
    model = build(**STACKED)
    src, src_pad_mask, _ = batch()
    memory = model.encode(src, src_pad_mask)
    assert not model.has_attention
    assert build().has_attention
    assert model.step(torch.tensor([BOS, BOS]), model.start(memory), memory, need_attention=True).attention is None


@pytest.mark.parametrize("changes", [{}, STACKED, {"decoder_dilations": (1, 2, 1)}])
def test_a_target_position_knows_nothing_of_those_behind_it(changes: dict[str, object]) -> None:
    """CH-108, and the decoder's receptive field: kernels 3, 2, 1 with rates 1 see 2 + 1 + 0 positions before."""
    model = build(**changes)
    src, src_pad_mask, trg_in = batch()
    before = model(src, src_pad_mask, trg_in)
    reach = 4 if "decoder_dilations" in changes else 3
    for position in range(6):
        changed = trg_in.clone()
        changed[0, position] = 1
        differs = (model(src, src_pad_mask, changed) - before).abs().amax(dim=2) > 0
        assert differs[0].nonzero().flatten().tolist() == list(range(position, min(6, position + reach + 1)))
        assert not differs[1].any()


@pytest.mark.parametrize(("n_layers", "kernel", "dilations"), [(2, 3, (1,)), (1, 5, (1,)), (3, 3, (1, 3, 9))])
def test_an_encoder_state_sees_its_receptive_field(n_layers: int, kernel: int, dilations: tuple[int, ...]) -> None:
    """CH-123: l(k - 1) + 1 positions, 3^3 with rates 1, 3, 9; CH-72's probing, by gradients."""
    field = {(2, 3): 5, (1, 5): 5, (3, 3): 27}[n_layers, kernel]
    model = build(encoder_widths=(8,) * n_layers, encoder_kernels=(kernel,), encoder_dilations=dilations)
    src = torch.randint(4, V, (1, 41), generator=torch.Generator().manual_seed(1))
    embedded: list[Tensor] = []

    def keep(_module: object, _arguments: object, output: Tensor) -> None:
        output.retain_grad()
        embedded.append(output)

    model.src_embedding.register_forward_hook(keep)
    model.encode(src, torch.zeros_like(src, dtype=torch.bool)).states[0, 20].sum().backward()
    assert embedded[0].grad is not None
    seen = embedded[0].grad[0].abs().amax(dim=1).nonzero().flatten().tolist()
    assert seen == list(range(20 - field // 2, 20 + field // 2 + 1))


def test_cross_attention_reaches_the_whole_source_in_one_layer() -> None:
    """CH-72 for the attention between the two sides: every encoder state, near or far."""
    model = build(decoder_widths=(7,), decoder_kernels=(1,))
    src = torch.randint(4, V, (1, 30), generator=torch.Generator().manual_seed(1))
    memory = model.encode(src, torch.zeros_like(src, dtype=torch.bool))
    states = memory.states.detach().requires_grad_()
    step = model.step(torch.tensor([BOS]), model.start(memory), memory._replace(states=states))
    (gradient,) = torch.autograd.grad(step.logits.sum(), states)
    assert (gradient[0].abs().amax(dim=1) > 0).all()


def test_the_gradient_into_the_encoder_is_divided_by_the_attentions() -> None:
    """§3.5, in training; the part that reaches the source embeddings through z + e is not."""
    model = build(dropout=0.0).train()
    src, src_pad_mask, trg_in = batch()
    memory = model.encode(src, src_pad_mask)
    (found,) = torch.autograd.grad(model(src, src_pad_mask, trg_in).square().sum(), [model.src_output.bias])

    lengths = torch.tensor([5.0, 3.0], dtype=torch.float64)[:, None, None]
    z = memory.states.detach().requires_grad_()
    embedded = model.src_embedding(src, torch.arange(5)).detach()
    embedded.requires_grad_()
    by_hand = memory._replace(states=z, cache=(z + embedded) * lengths.sqrt())
    state, total = model.start(memory), torch.zeros(())
    for prev in trg_in.unbind(1):
        step = model.step(prev, state, by_hand)
        state, total = step.state, total + step.logits.square().sum()
    d_z, d_embedded = torch.autograd.grad(total, [z, embedded])
    expected = (d_z / 3).masked_fill(src_pad_mask[:, :, None], 0).sum(dim=(0, 1))
    torch.testing.assert_close(found, expected)

    # The embeddings of the source get both parts: one through z, divided, and one as they are.
    again = model.encode(src, src_pad_mask)
    (through_z,) = torch.autograd.grad(again.states, [model.src_embedding.tokens.weight], d_z)
    (whole,) = torch.autograd.grad(model(src, src_pad_mask, trg_in).square().sum(), [model.src_embedding.tokens.weight])
    direct = torch.zeros(V, 6, dtype=torch.float64).index_add(0, src.flatten(), d_embedded.flatten(0, 1))
    direct[PAD] = 0
    torch.testing.assert_close(whole, through_z + direct)


def test_a_state_is_constant_in_size_however_long_the_target() -> None:
    model = build()
    src, src_pad_mask, _ = batch()
    memory = model.encode(src, src_pad_mask)
    state = model.start(memory)
    shapes = [(2, 2, 7), (2, 1, 7), (2, 0, 9)]  # (kernel - 1) inputs of each layer, as wide as the layer before
    for length in range(40):  # far beyond the 8 positions that have an embedding of their own
        assert [tuple(past.shape) for past in state.pasts] == shapes
        assert state.position.tolist() == [length, length]
        state = model.step(torch.tensor([5, 6]), state, memory).state


def test_positions_beyond_the_last_share_it() -> None:
    model = build()
    tokens = torch.full((1, 12), 5)
    embedded = model.src_embedding(tokens, torch.arange(12))
    assert (embedded[0, 7:] == embedded[0, 7]).all()
    assert not torch.allclose(embedded[0, 6], embedded[0, 7])
    logits = model(tokens, tokens == PAD, tokens).detach().numpy()
    expected, _ = reference(model, [5] * 12, [5] * 12)
    np.testing.assert_allclose(logits[0], expected, rtol=1e-9, atol=1e-11)


def test_without_positions_a_repeated_token_looks_the_same_everywhere() -> None:
    model = build(max_positions=0)
    assert model.src_embedding.positions is None
    tokens = torch.full((1, 9), 5)
    states = model.encode(tokens, tokens == PAD).states[0]
    middle = states[2:-2]  # two layers of kernel 3 do not see the ends from here
    torch.testing.assert_close(middle, middle[:1].expand_as(middle))
    with_positions = build().encode(tokens, tokens == PAD).states[0]
    assert not torch.allclose(with_positions[3], with_positions[4])


def closed_form(config: Config, src_vocab: int, trg_vocab: int) -> int:
    """Counted from the matrices: weight norm adds a gain for each output, each layer has biases."""

    def layer(d_in: int, d_out: int) -> int:
        return d_out * d_in + d_out + d_out

    def stack(widths: tuple[int, ...], kernels: tuple[int, ...]) -> int:
        total = 0
        for number, width in enumerate(widths):
            below = widths[number - 1] if number else widths[0]
            total += layer(kernels[number % len(kernels)] * below, 2 * width)
            total += layer(below, width) if below != width else 0
        return total

    f = config.d_embedding
    total = (src_vocab + trg_vocab + 2 * config.max_positions) * f
    total += layer(f, config.encoder_widths[0]) + layer(config.encoder_widths[-1], f)
    total += layer(f, config.decoder_widths[0]) + layer(config.decoder_widths[-1], f)
    total += stack(config.encoder_widths, config.encoder_kernels)
    total += stack(config.decoder_widths, config.decoder_kernels)
    if config.attention == "multi_step":
        total += sum(layer(width, f) + layer(f, width) for width in config.decoder_widths)
    else:
        total += layer(f, config.decoder_widths[0])
    return total + layer(f, trg_vocab)


@pytest.mark.parametrize("name", PRESETS)
def test_the_number_of_parameters_has_a_closed_form(name: str) -> None:
    with torch.device("meta"):
        model = Model(PRESETS[name], 11, 13, PAD)
    assert sum(parameter.numel() for parameter in model.parameters()) == closed_form(PRESETS[name], 11, 13)


def test_the_parameters_of_varying_widths_by_hand() -> None:
    """f = 6, encoder 8 and 10 with k = 3, decoder 7, 9, 9 with k = 3, 2, 1; 11 tokens a side, 8 positions a side."""
    embeddings = (11 + 11 + 8 + 8) * 6
    ends = (6 * 8 + 16) + (10 * 6 + 12) + (6 * 7 + 14) + (9 * 6 + 12)
    encoder = (3 * 8 * 16 + 32) + (3 * 8 * 20 + 40) + (8 * 10 + 20)
    decoder = (3 * 7 * 14 + 28) + (2 * 7 * 18 + 36) + (7 * 9 + 18) + (9 * 18 + 36)
    attention = (7 * 6 + 12 + 6 * 7 + 14) + 2 * (9 * 6 + 12 + 6 * 9 + 18)
    output = 6 * 11 + 22
    expected = embeddings + ends + encoder + decoder + attention + output
    assert sum(parameter.numel() for parameter in build().parameters()) == expected


def test_the_paper_preset_is_that_of_wmt14_english_german() -> None:
    config = PRESETS["paper"]
    for widths, kernels in (
        (config.encoder_widths, config.encoder_kernels),
        (config.decoder_widths, config.decoder_kernels),
    ):
        assert widths == (512,) * 10 + (768,) * 3 + (2048,) * 2
        assert kernels == (3,) * 13 + (1,) * 2
    assert config.attention == "multi_step"
    assert (config.encoder_dilations, config.decoder_dilations) == ((1,), (1,))


@pytest.mark.parametrize(("name", "n_layers", "field"), [("bytenet_paper", 30, 373), ("bytenet", 5, 63)])
def test_the_bytenet_presets_see_as_far_as_bytenet(name: str, n_layers: int, field: int) -> None:
    """CH-123"""
    with torch.device("meta"):
        model = Model(PRESETS[name], V, V, PAD)
    for blocks in (model.encoder, model.decoder):
        assert len(blocks) == n_layers
        assert 1 + sum(block.convolution.reach for block in blocks) == field
    assert not model.has_attention
    assert model.unfold == 1.2


def test_embeddings_start_at_the_deviation_of_the_paper() -> None:
    """§3.5: N(0, 0.1^2)"""
    torch.manual_seed(1)
    model = Model(Config(max_positions=300), 700, V, PAD)
    for embedding in (model.src_embedding.tokens, model.src_embedding.positions):
        assert embedding is not None
        n_weights = embedding.weight.numel()
        deviation = embedding.weight.square().mean().sqrt().item()
        assert deviation == pytest.approx(0.1, rel=4 / math.sqrt(2 * n_weights) + 1 / 700)
    assert model.src_embedding.tokens.weight[PAD].eq(0).all()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"encoder_kernels": (3, 3, 1)}, "encoder_kernels: 3 values do not divide the 4 layers of encoder_widths"),
        ({"decoder_dilations": (1, 2, 4)}, "decoder_dilations: 3 values do not divide the 4 layers of decoder_widths"),
        ({"encoder_kernels": (4,)}, "encoder_kernels: an even kernel has no middle"),
        ({"unfold": 1.2}, "unfold: 1.2 needs attention none, got multi_step"),
        ({"decoder_widths": ()}, "at least 1 item"),
        ({"decoder_widths": (4, 0)}, "greater than or equal to 1"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Config(**fields)


def test_kernels_and_dilations_repeat_over_the_layers() -> None:
    model = Model(
        Config(encoder_widths=(4,) * 4, encoder_kernels=(3, 5), encoder_dilations=(1, 2, 4, 8), d_embedding=4),
        V,
        V,
        PAD,
    )
    found = [(block.convolution.kernel, block.convolution.dilation) for block in model.encoder]
    assert found == [(3, 1), (5, 2), (3, 4), (5, 8)]


def test_a_checkpoint_carries_gains_and_directions() -> None:
    """Weight normalisation holds two tensors for each matrix; a checkpoint names both, and the matrix follows."""
    saved, loaded = build(), Model(Config(**SIZES), V, V, PAD).double().eval()
    tensors = unique_tensors(saved)
    assert {name for name in tensors if name.startswith("output.")} == {
        "output.bias",
        "output.parametrizations.weight.original0",
        "output.parametrizations.weight.original1",
    }
    assert len(tensors) == len(list(saved.parameters()))
    copy_weights(loaded, tensors, Path("nowhere"))
    assert torch.equal(loaded(*batch()), saved(*batch()))


def test_dropout_stands_where_the_paper_has_it() -> None:
    """On both embeddings, on the input of every block, on the decoder's output, and nowhere else."""
    model = build(dropout=0.5).train()
    called = []
    for name, module in model.named_modules():
        if isinstance(module, Dropout):
            assert module.p == 0.5
            module.register_forward_hook(lambda *_, name=name: called.append(name))
    src, src_pad_mask, trg_in = batch()
    features = model.features(src.repeat(50, 1), src_pad_mask.repeat(50, 1), trg_in.repeat(50, 1))
    blocks = [f"encoder.{n}.convolution.dropout" for n in range(2)]
    blocks += [f"decoder.{n}.convolution.dropout" for n in range(3)]
    assert sorted(called) == sorted(["src_embedding.dropout", "trg_embedding.dropout", *blocks, "dropout"])
    embedded = model.trg_embedding(trg_in.repeat(50, 1), torch.arange(6))
    for dropped in (features, embedded):  # 3,600 elements of a fair coin, four standard errors
        assert dropped.eq(0).double().mean().item() == pytest.approx(0.5, abs=4 * 0.5 / 60)


def test_source_padding_changes_nothing_even_where_tokens_stand_on_it() -> None:
    for changes in ({}, STACKED):
        model = build(**changes)
        src, src_pad_mask, trg_in = batch()
        expected = model(src[1:, :3], src_pad_mask[1:, :3], trg_in[1:])
        torch.testing.assert_close(model(src, src_pad_mask, trg_in)[1:], expected)
        scribbled = src.masked_fill(src_pad_mask, 7)
        torch.testing.assert_close(model(scribbled, src_pad_mask, trg_in)[1:], expected)


def test_the_scale_of_the_context_follows_the_source_length() -> None:
    """m sqrt(1/m): over m equal states the context is sqrt(m) times one of them."""
    model = build(max_positions=0, encoder_kernels=(1,))  # without positions and neighbours all states are equal
    values = {}
    for m in (1, 4, 9):
        src = torch.full((1, m), 5)
        memory = model.encode(src, src == PAD)
        values[m] = memory.cache[0].mean(dim=0)
    torch.testing.assert_close(values[4], 2 * values[1])
    torch.testing.assert_close(values[9], 3 * values[1])
