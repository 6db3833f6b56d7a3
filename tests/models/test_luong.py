"""Luong's systems are what Luong et al. (2015) describe."""

from __future__ import annotations

import pydantic
import pytest
import torch
from torch import Tensor

from mtkit import models
from mtkit.models import luong
from mtkit.text.tokenizer import BOS_ID, EOS_ID, PAD_ID

SRC = torch.tensor([[4, 5, 6, 7, EOS_ID], [8, 9, EOS_ID, PAD_ID, PAD_ID]])
MASK = SRC == PAD_ID
TRG_IN = torch.tensor([[BOS_ID, 5, 6, 7], [BOS_ID, 9, 4, 4]])


def build(**fields: object) -> luong.Model:
    torch.manual_seed(1)
    sizes: dict[str, object] = {"window": 2} if str(fields.get("attention")).startswith("local") else {}
    if fields.get("score") == "location":
        sizes["max_source_length"] = 32
    return models.build({"type": "luong", "preset": "tiny", **sizes, **fields}, 11, 11, PAD_ID).eval()  # type: ignore[return-value]


def attention_after(model: luong.Model, tokens: list[int]) -> Tensor:
    """Of the last of several steps, for the first source."""
    memory = model.encode(SRC[:1], MASK[:1])
    state = model.start(memory)
    for token in tokens:
        step = model.step(torch.tensor([token]), state, memory, need_attention=True)
        state = step.state
    assert step.attention is not None
    return step.attention[0]


def test_attention_follows_the_newest_token() -> None:
    """CH-54: alignment from h_t, which has read y_{t-1}; Bahdanau et al. (2015) align with s_{i-1}, which has not."""
    model = build()
    assert not torch.allclose(attention_after(model, [BOS_ID, 5]), attention_after(model, [BOS_ID, 6]))


def test_output_is_the_softmax_of_the_attentional_vector() -> None:
    """Eq. 5 and 6, with the decoder's top state computed apart."""
    model = build(input_feeding=False, n_layers=1)
    memory = model.encode(SRC, MASK)
    layer = model.decoder.layers[0]
    final = memory.cache.final
    h_t, _ = layer(layer.input(model.trg_embedding(TRG_IN[:, 0])), final.hidden[:, 0], final.cell[:, 0])
    step = model.step(TRG_IN[:, 0], model.start(memory), memory, need_attention=True)
    assert step.attention is not None
    context = torch.einsum("bs,bsd->bd", step.attention, memory.states)
    expected = model.output(torch.tanh(model.combine.weight @ torch.cat([context, h_t], dim=1).t()).t())
    torch.testing.assert_close(step.logits, expected)


def test_the_first_layer_reads_the_embedding_and_the_attentional_vector() -> None:
    """CH-49: [e(y_{t-1}); h~_{t-1}], so 2n wide where the embedding is n wide as in the paper."""
    assert build(d_embedding=16, input_feeding=True).decoder.layers[0].input.in_features == 32
    assert build(d_embedding=16, input_feeding=False).decoder.layers[0].input.in_features == 16
    with torch.device("meta"):
        published = models.build({"type": "luong", "preset": "paper"}, 11, 11, PAD_ID)
    assert published.decoder.layers[0].input.in_features == 2000
    model = build()
    memory = model.encode(SRC, MASK)
    state = model.step(TRG_IN[:, 0], model.start(memory), memory).state
    changed = state._replace(attentional=state.attentional + 0.5)
    one, other = (model.step(TRG_IN[:, 1], each, memory).logits for each in (state, changed))
    assert not torch.allclose(one, other)


def test_what_is_fed_is_the_attentional_vector_itself() -> None:
    """D-36: h~ = tanh(W_c [c; h]), not the context; the output layer turns it into the logits."""
    model = build()
    memory = model.encode(SRC, MASK)
    step = model.step(TRG_IN[:, 0], model.start(memory), memory)
    torch.testing.assert_close(model.output(step.state.attentional[:, 0]), step.logits)


def test_the_first_step_is_fed_zeros() -> None:
    model = build()
    state = model.start(model.encode(SRC, MASK))
    assert (state.attentional == 0).all()
    assert state.attentional.shape == (2, 1, 16)


@pytest.mark.parametrize("attention", ["global", "local_m", "local_p"])
def test_a_reversed_source_keeps_its_positions(attention: str) -> None:
    """CH-41: what is read backwards is the encoder's business; windows and columns follow the text.

    The same weights read the reversed text forwards: then the state of a word, and its attention, stand at the mirrored
    place. Under global attention nothing else changes; a window would stand elsewhere.
    """
    backwards, forwards = build(attention=attention), build(attention=attention, reverse_source=False)
    mirrored = SRC[:1].flip(1)
    states = backwards.encode(SRC[:1], MASK[:1]).states
    torch.testing.assert_close(states, forwards.encode(mirrored, MASK[:1]).states.flip(1))
    if attention == "global":
        one, other = backwards.encode(SRC[:1], MASK[:1]), forwards.encode(mirrored, MASK[:1])
        first = backwards.step(TRG_IN[:1, 0], backwards.start(one), one, need_attention=True)
        second = forwards.step(TRG_IN[:1, 0], forwards.start(other), other, need_attention=True)
        assert first.attention is not None
        assert second.attention is not None
        torch.testing.assert_close(first.attention, second.attention.flip(1))
        torch.testing.assert_close(first.logits, second.logits)
    if attention == "local_m":
        looked = attention_after(build(attention="local_m", window=1), [BOS_ID]) > 0
        assert looked.tolist() == [True, True, False, False, False]  # the text's first word, though it was read last


@pytest.mark.parametrize("attention", ["local_m", "local_p"])
def test_steps_through_a_long_source_are_those_of_training(attention: str) -> None:
    """A step fetches its window of a long source; teacher forcing hides what is outside. Two beams a sentence."""
    model = build(attention=attention, window=1, input_feeding=False)
    src = torch.randint(4, 11, (2, 40))
    src[0, 39], src[1, 9], src[1, 10:] = EOS_ID, EOS_ID, PAD_ID
    beams = torch.tensor([[BOS_ID, 5, 6], [BOS_ID, 6, 4], [BOS_ID, 9, 9], [BOS_ID, 4, 10]])
    memory = model.encode(src, src == PAD_ID)
    state = models.select_rows(model.start(memory), torch.tensor([0, 0, 1, 1]))
    twice = src.repeat_interleave(2, dim=0)
    trained = model(twice, twice == PAD_ID, beams)
    for t, prev in enumerate(beams.unbind(1)):
        step = model.step(prev, state, memory, need_attention=True)
        state = step.state
        torch.testing.assert_close(step.logits, trained[:, t])
        assert step.attention is not None
        assert ((step.attention > 0).sum(1) <= 3).all()
        assert (step.attention[2:, 10:] == 0).all()


def test_without_attention_the_source_reaches_the_decoder_through_its_first_state_alone() -> None:
    """The base system of the paper's table 1."""
    model = build(attention="none", input_feeding=False)
    assert not model.has_attention
    memory = model.encode(SRC, MASK)
    state = model.start(memory)
    emptied = memory._replace(states=torch.full_like(memory.states, torch.nan))
    torch.testing.assert_close(
        model.step(TRG_IN[:, 0], state, emptied).logits, model.step(TRG_IN[:, 0], state, memory).logits
    )


def test_without_attention_it_is_seq2seq() -> None:
    base = build(attention="none", input_feeding=False)
    other = models.build({"type": "seq2seq", "preset": "tiny"}, 11, 11, PAD_ID).eval()
    other.load_state_dict(base.state_dict())
    torch.testing.assert_close(base(SRC, MASK, TRG_IN), other(SRC, MASK, TRG_IN))


def test_the_fed_loop_has_the_gradients_of_single_steps() -> None:
    model = build(attention="local_p", score="concat", n_layers=3).double()
    parameters = list(model.parameters())
    fed = model(SRC, MASK, TRG_IN)
    memory = model.encode(SRC, MASK)
    state, logits = model.start(memory), []
    for prev in TRG_IN.unbind(1):
        step = model.step(prev, state, memory)
        state = step.state
        logits.append(step.logits)
    stepped = torch.stack(logits, dim=1)
    torch.testing.assert_close(fed, stepped)
    upstream = torch.randn_like(fed)
    ours, plain = (torch.autograd.grad(each, parameters, upstream) for each in (fed, stepped))
    for (name, _), one, other in zip(model.named_parameters(), ours, plain, strict=True):
        torch.testing.assert_close(one, other, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("attention", ["none", "global", "local_m", "local_p"])
@pytest.mark.parametrize(("score", "of_score"), [("dot", 0), ("general", 256), ("concat", 528), ("location", 512)])
@pytest.mark.parametrize("feeding", [True, False])
def test_parameters_are_those_of_the_closed_form(attention: str, score: str, of_score: int, feeding: bool) -> None:
    """n = 16: general n^2, concat 2 n^2 + n, location 32 positions x n."""
    m, n, layers, vocab = 12, 16, 2, 11
    if attention == "none" and (feeding or score != "general"):
        return  # no such model
    model = build(attention=attention, score=score, input_feeding=feeding)
    one_stack = 4 * n * (m + n + 1) + (layers - 1) * 4 * n * (2 * n + 1)
    expected = 2 * m * vocab + 2 * one_stack + vocab * (n + 1)
    if attention != "none":
        expected += of_score + 2 * n * n  # W_c
    if attention == "local_p":
        expected += n * n + n  # W_p, v_p
    if feeding:
        expected += 4 * n * n
    assert sum(parameter.numel() for parameter in model.parameters()) == expected


def test_the_preset_paper_is_the_papers_best_single_model() -> None:
    """§4.1: 4 layers of 1000 cells, embeddings of 1000, D = 10, dropout 0.2; table 4: local-p (general) + feed."""
    config = luong.PRESETS["paper"]
    assert (config.n_layers, config.d_hidden, config.d_embedding, config.window) == (4, 1000, 1000, 10)
    assert (config.attention, config.score, config.gaussian) == ("local_p", "general", "paper")
    assert config.input_feeding
    assert config.reverse_source
    assert config.dropout == 0.2


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"attention": "none"}, "input_feeding: needs attention; with attention none set it to false"),
        (
            {"attention": "local_p", "gaussian": "none"},
            "gaussian: none leaves local_p without a gradient for its window; choose paper or chapter",
        ),
        ({"attention": "none", "input_feeding": False, "score": "dot"}, "score: dot needs attention global or local_m"),
        ({"window": 3}, "window: 3 needs attention local_m or local_p, got global"),
        ({"gaussian": "chapter"}, "gaussian: chapter needs attention local_m or local_p, got global"),
        ({"max_source_length": 9}, "max_source_length: 9 needs score location, got general"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(fields: dict[str, str], message: str) -> None:
    with pytest.raises(pydantic.ValidationError, match=message):
        luong.Config(**fields)  # type: ignore[arg-type]
