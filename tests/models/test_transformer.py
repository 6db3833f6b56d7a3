"""The Transformer against the paper's sizes and torch's own layers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from mtkit import models
from mtkit.models.transformer import PRESETS, Config, DecoderLayer, EncoderLayer, Model, Residual
from mtkit.nn.attention import MultiHeadAttention
from mtkit.nn.dropout import Dropout
from mtkit.nn.masks import causal_mask, key_pad_mask

PAD, BOS, EOS = 0, 2, 3
SIZES = {"d_model": 16, "d_ff": 24, "n_heads": 4, "n_layers": 2, "dropout": 0.0}
V = 11


def build(vocab_size: int = V, **changes: object) -> Model:
    torch.manual_seed(3)
    model = Model(Config(**{**SIZES, **changes}), vocab_size, vocab_size, PAD)
    randomise(model)
    return model.eval()


def randomise(module: nn.Module) -> None:
    """No weight at a special value, so that a term that is left out is seen."""
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if "norm" in name and name.endswith("weight"):
                parameter.normal_(1, 0.2)
            elif parameter.dim() == 1:
                parameter.normal_(0, 0.2)


def batch() -> tuple[Tensor, Tensor, Tensor]:
    """Two pairs of unequal length: src, src_pad_mask, trg_in."""
    src = torch.tensor([[4, 5, 6, 7, EOS], [8, 9, EOS, PAD, PAD]])
    trg_in = torch.tensor([[BOS, 5, 4, 10, 7], [BOS, 6, 6, PAD, PAD]])
    return src, src == PAD, trg_in


def test_the_published_sizes_have_the_published_number_of_parameters() -> None:
    """CH-113; Vaswani et al. (2017), Table 3, with the shared vocabulary of about 37,000 tokens (§5.1)."""
    vocab_size = 37_000
    published_millions = {"base": 65, "big": 213}
    expected_millions = {"base": 63.08, "big": 214.2}
    by_hand = {"base": 44_138_496 + 512 * vocab_size, "big": 176_357_376 + 1024 * vocab_size}
    for name, (d, d_ff, n_layers) in {"base": (512, 2048, 6), "big": (1024, 4096, 6)}.items():
        attention = 4 * (d * d + d)  # query, key, value, output, each with bias
        feed_forward = d * d_ff + d_ff + d_ff * d + d
        norm = 2 * d
        encoder_layer = attention + feed_forward + 2 * norm
        decoder_layer = 2 * attention + feed_forward + 3 * norm
        closed_form = n_layers * (encoder_layer + decoder_layer) + vocab_size * d
        with torch.device("meta"):
            model = Model(PRESETS[name], vocab_size, vocab_size, PAD)
        count = sum(parameter.numel() for parameter in model.parameters())
        assert count == closed_form == by_hand[name]
        assert round(count / 1e6, 1 if name == "big" else 2) == expected_millions[name]
        assert count / 1e6 == pytest.approx(published_millions[name], rel=0.03)


def count(*modules: nn.Module) -> int:
    """Parameters."""
    return sum(parameter.numel() for module in modules for parameter in module.parameters())


@pytest.mark.parametrize(("name", "d", "d_ff"), [("base", 512, 2048), ("big", 1024, 4096)])
def test_parameters_by_block(name: str, d: int, d_ff: int) -> None:
    """CH-113, CH-114, CH-115"""
    vocab_size = 37_000
    with torch.device("meta"):
        model = Model(PRESETS[name], vocab_size, vocab_size, PAD)
    attention, norm, feed_forward = 4 * d * d + 4 * d, 2 * d, 2 * d * d_ff + d_ff + d
    encoder, decoder = count(*model.encoder), count(*model.decoder)
    assert encoder == 6 * (attention + feed_forward + 2 * norm)
    assert decoder == 6 * (2 * attention + feed_forward + 3 * norm)
    assert decoder - encoder == 6 * (4 * d**2 + 4 * d + 2 * d), "attention over the source and its normalisation"
    assert count(model.src_embedding, model.output) == 2 * vocab_size * d
    assert count(model) == encoder + decoder + vocab_size * d, "one matrix serves three times"
    norms = [module for module in model.modules() if isinstance(module, nn.LayerNorm)]
    assert {count(module) for module in norms} == {2 * d}
    assert len(norms) == 6 * (2 + 3)
    assert count(*norms) / count(model) < 0.0005
    if name == "base":  # in millions: 18.94 for the embeddings, 18.91 and 25.22 for the stacks
        assert [round(n / 1e6, 2) for n in (vocab_size * d, encoder, decoder)] == [18.94, 18.91, 25.22]


def test_the_number_of_heads_changes_no_size() -> None:
    """CH-78"""
    sizes = set()
    for n_heads in (1, 4, 8, 16, 32):
        with torch.device("meta"):
            sizes.add(count(Model(PRESETS["base"].model_copy(update={"n_heads": n_heads}), V, V, PAD)))
    assert sizes == {44_138_496 + 512 * V}


def test_shapes_from_tokens_to_logits() -> None:
    """CH-111: the base model, [B, S] -> [B, S, 512] six times over; [B, T] -> [B, T, 512] -> [B, T, V]."""
    vocab_size, batch_size, src_len, trg_len = 50, 2, 7, 5
    shapes = []
    with torch.device("meta"):
        model = Model(PRESETS["base"], vocab_size, vocab_size, PAD)
        for layer in (*model.encoder, *model.decoder):
            layer.register_forward_hook(lambda _module, _inputs, output: shapes.append(tuple(output.shape)))
        src = torch.zeros(batch_size, src_len, dtype=torch.long)
        trg_in = torch.zeros(batch_size, trg_len, dtype=torch.long)
        logits = model(src, src == PAD, trg_in)
        memory = model.encode(src, src == PAD)
        step = model.step(trg_in[:, 0], model.start(memory), memory)
    assert model.src_embedding(src).shape == (batch_size, src_len, 512)
    assert shapes[:12] == [(batch_size, src_len, 512)] * 6 + [(batch_size, trg_len, 512)] * 6
    assert memory.states.shape == (batch_size, src_len, 512)
    assert logits.shape == (batch_size, trg_len, vocab_size)
    assert step.logits.shape == (batch_size, vocab_size)
    assert {tuple(part.shape) for pair in memory.cache for part in pair} == {(batch_size, 8, src_len, 64)}
    assert {tuple(part.shape) for pair in step.state.layers for part in pair} == {(batch_size, 8, 1, 64)}


def test_the_presets_are_those_of_table_3() -> None:
    """CH-112; 0.3 is the big model's dropout for En-De, 0.1 the one for En-Fr."""
    base, big = PRESETS["base"], PRESETS["big"]
    assert (base.n_layers, base.d_model, base.d_ff, base.n_heads, base.dropout) == (6, 512, 2048, 8, 0.1)
    assert (big.n_layers, big.d_model, big.d_ff, big.n_heads, big.dropout) == (6, 1024, 4096, 16, 0.3)
    assert {base.norm, big.norm} == {"post"}
    assert {base.tied_embeddings, big.tied_embeddings} == {"three_way"}


def test_a_target_position_knows_nothing_of_those_behind_it() -> None:
    """CH-108"""
    model = build()
    src, src_pad_mask, trg_in = batch()
    before = model(src, src_pad_mask, trg_in)
    for position in range(1, trg_in.size(1)):
        changed = trg_in.clone()
        changed[:, position] = 9
        after = model(src, src_pad_mask, changed)
        assert torch.equal(after[:, :position], before[:, :position])
        assert not torch.allclose(after[0, position], before[0, position])
        if position + 1 < trg_in.size(1):
            assert not torch.allclose(after[0, -1], before[0, -1]), "later positions do see it"


def test_no_gradient_flows_from_an_output_to_a_later_position() -> None:
    """CH-108"""
    model = build()
    src, src_pad_mask, trg_in = batch()
    embedded: list[Tensor] = []
    model.trg_positions.register_forward_hook(lambda _module, _inputs, output: embedded.append(output))
    features = model.features(src, src_pad_mask, trg_in)
    for position in range(trg_in.size(1)):
        upstream = torch.randn_like(features[:, position])
        (slopes,) = torch.autograd.grad(features[:, position], embedded[-1], upstream, retain_graph=True)
        assert slopes[:, position + 1 :].eq(0).all()
        assert slopes[:, : position + 1].abs().amax(-1).gt(0).all()


def test_every_source_position_sees_every_other() -> None:
    model = build()
    src, src_pad_mask, _ = batch()
    before = model.encode(src, src_pad_mask).states
    for position in range(src.size(1) - 1):
        changed = src.clone()
        changed[0, position] = 10
        after = model.encode(changed, src_pad_mask).states
        assert (after[0] - before[0]).abs().amax(-1).gt(0).all()
        assert torch.equal(after[1], before[1])


def test_source_padding_changes_nothing() -> None:
    model = build()
    src, src_pad_mask, trg_in = batch()
    alone = model(src[1:, :3], src_pad_mask[1:, :3], trg_in[1:, :3])
    together = model(src, src_pad_mask, trg_in)
    assert torch.allclose(alone[0], together[1, :3], rtol=0, atol=1e-5)
    scribbled = torch.where(src_pad_mask, 7, src)
    assert torch.allclose(model(scribbled, src_pad_mask, trg_in), together, rtol=0, atol=1e-6)


def test_cross_attention_is_the_only_way_from_source_to_target() -> None:
    """CH-110"""
    model = build()
    src, src_pad_mask, trg_in = batch()
    other = src.where(src_pad_mask | (src == EOS), 10)
    assert not torch.allclose(model(src, src_pad_mask, trg_in), model(other, src_pad_mask, trg_in))
    with torch.no_grad():
        for layer in model.decoder:
            assert isinstance(layer, DecoderLayer)
            layer.cross_attention.output.weight.zero_()
    assert torch.equal(model(src, src_pad_mask, trg_in), model(other, src_pad_mask, trg_in))


def test_without_positions_the_encoder_would_be_blind_to_order() -> None:
    """CH-60: a permuted source gives permuted states once the position signal is taken away, and other ones with it."""
    model = build()
    src = torch.tensor([[4, 5, 6, 7]])
    order = torch.tensor([2, 0, 3, 1])
    nothing = torch.zeros(1, 4, dtype=torch.bool)
    assert not torch.allclose(model.encode(src[:, order], nothing).states, model.encode(src, nothing).states[:, order])
    model.src_positions.table.zero_()
    found = model.encode(src[:, order], nothing).states
    assert torch.allclose(found, model.encode(src, nothing).states[:, order], rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("tied", "same"),
    [
        ("three_way", {"src_embedding", "trg_embedding", "output"}),
        ("two_way", {"trg_embedding", "output"}),
        ("none", set[str]()),
    ],
)
def test_tied_matrices_are_one_matrix(tied: str, same: set[str]) -> None:
    """CH-118"""
    model = build(tied_embeddings=tied)
    matrices = {name: getattr(model, name).weight for name in ("src_embedding", "trg_embedding", "output")}
    places = {name: matrix.data_ptr() for name, matrix in matrices.items()}
    assert len({places[name] for name in same}) == min(1, len(same))
    assert len(set(places.values())) == 3 - max(0, len(same) - 1)
    untied = sum(parameter.numel() for parameter in build(tied_embeddings="none").parameters())
    assert sum(parameter.numel() for parameter in model.parameters()) == untied - max(0, len(same) - 1) * V * 16


def test_two_vocabularies_cannot_share_three_ways() -> None:
    with pytest.raises(ValueError, match="three_way needs one vocabulary, got sizes 11 and 12"):
        Model(Config(**SIZES), 11, 12, PAD)
    model = Model(Config(**SIZES, tied_embeddings="two_way"), 11, 12, PAD).eval()
    assert model(*batch()).shape == (2, 5, 12)


def copy_attention(ours: MultiHeadAttention, theirs: nn.MultiheadAttention) -> None:
    theirs.in_proj_weight.copy_(torch.cat([ours.query.weight, ours.key_value.weight]))
    theirs.in_proj_bias.copy_(torch.cat([ours.query.bias, ours.key_value.bias]))
    theirs.out_proj.load_state_dict(ours.output.state_dict())


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_an_encoder_layer_equals_torchs(norm: str) -> None:
    """CH-107"""
    config = Config(**SIZES, norm=norm)
    torch.manual_seed(1)
    ours = EncoderLayer(config)
    randomise(ours)
    theirs = nn.TransformerEncoderLayer(16, 4, 24, dropout=0.0, batch_first=True, norm_first=norm == "pre")
    with torch.no_grad():
        copy_attention(ours.self_attention, theirs.self_attn)
        for own, other in (
            (ours.feed_forward.inner, theirs.linear1),
            (ours.feed_forward.outer, theirs.linear2),
            (ours.around_self_attention.norm, theirs.norm1),
            (ours.around_feed_forward.norm, theirs.norm2),
        ):
            other.load_state_dict(own.state_dict())
    x, pad = torch.randn(2, 5, 16), batch()[1]
    found, expected = ours(x, key_pad_mask(pad)), theirs(x, src_key_padding_mask=pad)
    assert torch.allclose(found[~pad], expected[~pad], rtol=0, atol=1e-5)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_a_decoder_layer_equals_torchs(norm: str) -> None:
    """CH-107"""
    config = Config(**SIZES, norm=norm)
    torch.manual_seed(2)
    ours = DecoderLayer(config)
    randomise(ours)
    theirs = nn.TransformerDecoderLayer(16, 4, 24, dropout=0.0, batch_first=True, norm_first=norm == "pre")
    with torch.no_grad():
        copy_attention(ours.self_attention, theirs.self_attn)
        copy_attention(ours.cross_attention, theirs.multihead_attn)
        for own, other in (
            (ours.feed_forward.inner, theirs.linear1),
            (ours.feed_forward.outer, theirs.linear2),
            (ours.around_self_attention.norm, theirs.norm1),
            (ours.around_cross_attention.norm, theirs.norm2),
            (ours.around_feed_forward.norm, theirs.norm3),
        ):
            other.load_state_dict(own.state_dict())
    x, states, pad = torch.randn(2, 4, 16), torch.randn(2, 5, 16), batch()[1]
    source = ours.cross_attention.project_keys_values(states)
    found = ours(x, causal_mask(4), source, key_pad_mask(pad))
    expected = theirs(x, states, tgt_mask=causal_mask(4), memory_key_padding_mask=pad)
    assert torch.allclose(found, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_steps_give_what_teacher_forcing_gives(norm: str) -> None:
    """CH-109"""
    model = build(norm=norm)
    src, src_pad_mask, trg_in = batch()
    expected = model(src, src_pad_mask, trg_in)
    memory = model.encode(src, src_pad_mask)
    state = model.start(memory)
    for position in range(trg_in.size(1)):
        asked = model.step(trg_in[:, position], state, memory, need_attention=True)
        step = model.step(trg_in[:, position], state, memory)
        assert torch.allclose(step.logits, expected[:, position], rtol=0, atol=1e-5)
        assert torch.allclose(asked.logits, step.logits, rtol=0, atol=1e-5)
        assert step.attention is None
        assert asked.attention is not None
        assert torch.allclose(asked.attention.sum(1), torch.ones(2))
        assert asked.attention[src_pad_mask].eq(0).all()
        state = step.state


def test_the_beams_of_a_sentence_share_its_memory() -> None:
    model = build()
    src, src_pad_mask, _ = batch()
    memory = model.encode(src, src_pad_mask)
    k = 3
    twice = models.select_rows(memory, torch.arange(2).repeat_interleave(k))
    prev = torch.tensor([4, 5, 6, 7, 8, 9])
    state = models.select_rows(model.start(memory), torch.arange(2).repeat_interleave(k))
    shared = model.step(prev, state, memory, need_attention=True)
    copied = model.step(prev, state, twice, need_attention=True)
    assert torch.allclose(shared.logits, copied.logits, rtol=0, atol=1e-5)
    assert shared.attention is not None
    assert copied.attention is not None
    assert torch.allclose(shared.attention, copied.attention, rtol=0, atol=1e-6)


def test_a_translation_may_be_longer_than_the_position_table() -> None:
    """CH-105"""
    model = build()
    length = model.trg_positions.table.size(0) + 5
    trg_in = torch.full((1, length), 4)
    src, src_pad_mask, _ = batch()
    assert torch.isfinite(model(src[:1], src_pad_mask[:1], trg_in)).all()


def test_dropout_stands_at_each_block_and_at_the_embeddings() -> None:
    """CH-117: on every block's output and both sums of embeddings and positions; on request inside the blocks too."""
    n_layers = SIZES["n_layers"]
    assert n_layers == 2
    model = build(dropout=0.1, attention_dropout=0.2, ff_dropout=0.3).train()
    seen = []
    for module in model.modules():
        if isinstance(module, Dropout):
            module.register_forward_hook(lambda module, _inputs, _output: seen.append(module.p))
    model(*batch())
    blocks = 2 * 2 + 3 * 2  # two in a layer of the encoder, three in one of the decoder
    assert seen.count(0.1) == blocks + 2
    assert seen.count(0.2) == 2 * 1 + 2 * 2
    assert seen.count(0.3) == 2 + 2


def test_dropout_drops_the_output_of_a_block_and_keeps_what_it_is_added_to() -> None:
    """CH-117"""
    torch.manual_seed(4)
    around = Residual(Config(**{**SIZES, "dropout": 0.5}, norm="pre")).train()
    x, block_output = torch.randn(50, 16), torch.randn(50, 16)
    added = around.after(x, block_output) - x
    dropped = added.abs() < 1e-6
    assert torch.allclose(added[~dropped], 2 * block_output[~dropped], rtol=0, atol=1e-5)
    # 800 elements: three standard errors of a half are 0.053
    assert abs(dropped.float().mean().item() - 0.5) <= 0.053


def test_post_norm_normalises_the_sum_and_pre_norm_what_a_block_reads() -> None:
    """CH-107: LayerNorm(x + block(x)), against x + block(LayerNorm(x)); in float64 from the definition."""
    generator = torch.Generator().manual_seed(8)
    x, block_output = torch.randn(3, 16, generator=generator), torch.randn(3, 16, generator=generator)

    def normalised(rows: Tensor) -> np.ndarray:
        rows = rows.double().numpy()
        return (rows - rows.mean(1, keepdims=True)) / np.sqrt(rows.var(1, keepdims=True) + 1e-5)

    post, pre = Residual(Config(**SIZES, norm="post")), Residual(Config(**SIZES, norm="pre"))
    assert torch.equal(post.before(x), x)
    assert np.allclose(post.after(x, block_output).detach().numpy(), normalised(x + block_output), rtol=0, atol=1e-5)
    assert np.allclose(pre.before(x).detach().numpy(), normalised(x), rtol=0, atol=1e-5)
    assert torch.equal(pre.after(x, block_output), x + block_output)


def test_dropout_acts_on_embeddings_and_blocks_while_training() -> None:
    """CH-117"""
    model = build(dropout=0.5).train()
    src, src_pad_mask, trg_in = batch()
    first, second = model(src, src_pad_mask, trg_in), model(src, src_pad_mask, trg_in)
    assert not torch.allclose(first, second)
    model.eval()
    assert torch.equal(model(src, src_pad_mask, trg_in), model(src, src_pad_mask, trg_in))


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"d_model": 512, "n_heads": 7}, "n_heads: 7 does not divide d_model 512"),
        ({"d_model": 15, "n_heads": 3}, "d_model: 15 is odd; sinusoidal positions need an even width"),
        ({"dropout": 1.0}, "less than 1"),
        ({"dropout": -0.1}, "greater than or equal to 0"),
        ({"n_layers": 0}, "greater than or equal to 1"),
        ({"norm": "mid"}, "'pre' or 'post'"),
        ({"kv": "gqa", "n_heads": 8, "n_kv_groups": 3}, "n_kv_groups: 3 does not divide n_heads 8"),
        ({"n_kv_groups": 4}, "n_kv_groups: 4 needs kv gqa, got mha"),
        ({"kv": "gqa", "d_latent": 8}, "d_latent: 8 needs kv mla, got gqa"),
        ({"max_positions": 9}, "max_positions: 9 needs positions learned, got sinusoidal"),
        ({"kv": "all"}, "'mha', 'gqa', 'mqa' or 'mla'"),
        ({"window": 0}, "greater than or equal to 1"),
        ({"positions": "learned", "max_positions": 0}, "greater than or equal to 1"),
        ({"n_headz": 4}, "Extra inputs are not permitted"),
    ],
)
def test_sizes_that_cannot_be_are_refused(section: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Config(**section)
