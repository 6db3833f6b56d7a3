"""Scores, windows and Gaussians of Luong et al. (2015), by hand and in NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from mtkit.nn import luong_attention
from mtkit.nn.additive import AdditiveAttention
from mtkit.nn.luong_attention import LuongAttention, SourceScore

D = 4
SCORES = ["dot", "general", "concat", "location"]


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(1)


def example(batch: int = 2, n: int = 3, src_len: int = 6) -> tuple[Tensor, Tensor, Tensor]:
    """Queries [batch, n, D], memory [batch, src_len, D], padding at the end of the second row."""
    mask = torch.zeros(batch, src_len, dtype=torch.bool)
    mask[-1, -2:] = True
    return torch.randn(batch, n, D).double(), torch.randn(batch, src_len, D).double(), mask


def attention(kind: str, score: str = "general", **options: object) -> LuongAttention:
    return LuongAttention(kind, score, D, D, **{"window": 2, **options}).double()  # type: ignore[arg-type]


def weights_of(module: LuongAttention, query: Tensor, memory: Tensor, mask: Tensor, first_step: int = 0) -> Tensor:
    steps = first_step + torch.arange(query.size(1))[None]
    return module.weights(query, module.keys(memory), mask, steps).detach()


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("score", SCORES)
def test_global_attention_has_the_value_of_its_equation(score: str) -> None:
    """CH-39: eq. 7-9 for every score, one query and one position at a time."""
    query, memory, mask = example()
    module = attention("global", score)
    found = weights_of(module, query, memory, mask)
    parts = {name: parameter.detach().numpy() for name, parameter in module.score.named_parameters()}
    for b in range(2):
        n_real = int((~mask[b]).sum())
        for t in range(3):
            h_t = query[b, t].numpy()
            energies = []
            for s in range(n_real):
                h_s = memory[b, s].numpy()
                energies.append(
                    {
                        "dot": lambda h_t, h_s, s: h_t @ h_s,
                        "general": lambda h_t, h_s, s: h_t @ parts["key.weight"] @ h_s,
                        "concat": lambda h_t, h_s, s: (
                            parts["energy.weight"][0]
                            @ np.tanh(
                                np.concatenate([parts["query.weight"], parts["key.weight"]], axis=1)
                                @ np.concatenate([h_t, h_s])
                            )
                        ),
                        "location": lambda h_t, h_s, s: parts["query.weight"][s] @ h_t,
                    }[score](h_t, h_s, s)
                )
            np.testing.assert_allclose(found[b, t, :n_real], softmax(np.array(energies)), rtol=1e-10)
        assert (found[b, :, n_real:] == 0).all()


def test_scores_have_the_parameters_of_table_1_2() -> None:
    """CH-39: 0 for dot, d_s d_h for general, n (d_s + d_h) + n for concat; a row a position for location."""

    def count(score: str) -> int:
        return sum(p.numel() for p in SourceScore(score, 5, 7, 6, 30).parameters())  # type: ignore[arg-type]

    assert count("general") == 5 * 7
    assert count("concat") == 6 * (5 + 7) + 6
    assert count("location") == 30 * 5
    assert sum(p.numel() for p in SourceScore("dot", 5, 5, 6, 30).parameters()) == 0


def test_dot_needs_one_width_and_general_does_not() -> None:
    """CH-27's other half"""
    with pytest.raises(ValueError, match="dot needs decoder and encoder states of one width, got 5 and 7"):
        SourceScore("dot", 5, 7, 6, 30)
    score = SourceScore("general", 5, 7, 6, 30)
    assert score(torch.randn(1, 2, 5), score.keys(torch.randn(1, 3, 7))).shape == (1, 2, 3)


def test_general_with_the_identity_is_dot() -> None:
    """CH-40"""
    query, memory, mask = example()
    general = attention("global", "general")
    with torch.no_grad():
        general.score.key.weight.copy_(torch.eye(D))
    torch.testing.assert_close(
        weights_of(general, query, memory, mask), weights_of(attention("global", "dot"), query, memory, mask)
    )


def test_concat_is_additive_attention_with_w_split_in_two() -> None:
    """CH-40: W_a = [W | U] of Bahdanau et al. (2015)."""
    query, memory, mask = example()
    concat = attention("global", "concat")
    additive = AdditiveAttention(D, D, D).double()
    with torch.no_grad():
        additive.query.weight.copy_(concat.score.query.weight)
        additive.key.weight.copy_(concat.score.key.weight)
        additive.key.bias.zero_()
        additive.energy.weight.copy_(concat.score.energy.weight)
    expected = additive(query[:, 0], memory, additive.keys(memory), mask)[1]
    torch.testing.assert_close(weights_of(concat, query[:, :1], memory, mask)[:, 0], expected)


def test_a_source_longer_than_the_location_table_gets_no_weight_behind_it() -> None:
    query, memory, mask = example()
    module = attention("global", "location", max_source_length=4)
    found = weights_of(module, query, memory, mask)
    assert (found[..., 4:] == 0).all()
    torch.testing.assert_close(found.sum(-1), torch.ones(2, 3).double())


@pytest.mark.parametrize("kind", ["local_m", "local_p"])
@pytest.mark.parametrize("gaussian", ["paper", "chapter"])
def test_a_window_of_location_scores_ends_with_the_table(kind: str, gaussian: str) -> None:
    """Behind it every score is missing: a window there would be empty, and its softmax not a number."""
    query, memory, mask = example(batch=1, n=20, src_len=20)
    module = attention(kind, "location", window=2, gaussian=gaussian, max_source_length=4)
    if kind == "local_p":
        with torch.no_grad():
            module.position.weight.mul_(100)  # p_t at the ends
    found = weights_of(module, query, memory, torch.zeros_like(mask))
    assert (found[..., :4].sum(-1) > 0).all()
    assert (found[..., 4:] == 0).all()


def test_local_m_looks_around_its_own_position() -> None:
    """CH-41, CH-42: p_t = t; the window is clipped at both ends, and t stops at the last source position."""
    query, memory, mask = example(n=9)
    found = weights_of(attention("local_m", window=1), query, memory, mask) > 0
    assert found[0, 0].tolist() == [True, True, False, False, False, False]
    assert found[0, 3].tolist() == [False, False, True, True, True, False]
    assert found[0, 5].tolist() == [False, False, False, False, True, True]
    assert found[0, 8].tolist() == found[0, 5].tolist()
    assert found[1, 8].tolist() == [False, False, True, True, False, False]  # four real tokens


def test_local_p_predicts_its_position() -> None:
    """CH-41: p_t = S sigmoid(v_p^T tanh(W_p h_t)), and the Gaussian around it shows where it lies."""
    query, memory, mask = example()
    module = attention("local_p", "dot", window=2)
    found = weights_of(module, query, memory, mask)
    hidden, vector = module.position_hidden.weight.detach().numpy(), module.position.weight.detach().numpy()[0]
    for b, n_real in enumerate((6, 4)):
        for t in range(3):
            h_t = query[b, t].numpy()
            p = n_real / (1 + math.exp(-(vector @ np.tanh(hidden @ h_t))))
            middle = min(math.floor(p), n_real - 1)
            inside = [s for s in range(n_real) if abs(s - middle) <= 2]
            aligned = softmax(np.array([h_t @ memory[b, s].numpy() for s in inside]))
            expected = np.zeros(6)
            for s, align in zip(inside, aligned, strict=True):
                expected[s] = align * math.exp(-((s - p) ** 2) / (2 * (2 / 2) ** 2))  # eq. 10, sigma = D / 2
            np.testing.assert_allclose(found[b, t], expected, rtol=1e-10)


def test_the_chapters_gaussian_is_renormalised_and_the_papers_is_not() -> None:
    """CH-43: align x Gaussian (paper) against exp(score) x Gaussian, divided by its sum (chapter)."""
    query, memory, mask = example()
    paper, chapter = attention("local_p", gaussian="paper"), attention("local_p", gaussian="chapter")
    chapter.load_state_dict(paper.state_dict())
    unnormalised = weights_of(paper, query, memory, mask)
    found = weights_of(chapter, query, memory, mask)
    assert (unnormalised.sum(-1) < 1).all()
    torch.testing.assert_close(found, unnormalised / unnormalised.sum(-1, keepdim=True))
    torch.testing.assert_close(found.sum(-1), torch.ones(2, 3).double())


def test_the_gaussian_falls_from_the_middle_with_sigma_of_half_the_window() -> None:
    """CH-43: equal scores leave the Gaussian alone; two sigma away, at the window's end, e^-2 of the middle is left."""
    module = attention("local_m", "dot", window=4, gaussian="chapter")
    memory = torch.ones(1, 21, D).double()
    found = weights_of(module, torch.ones(1, 1, D).double(), memory, torch.zeros(1, 21).bool(), first_step=10)[0, 0]
    assert found.argmax() == 10
    assert (found[14] / found[10]).item() == pytest.approx(math.exp(-2))
    assert (found[12] / found[10]).item() == pytest.approx(math.exp(-0.5))
    torch.testing.assert_close(found, found.flip(0))


def test_the_papers_local_m_has_no_gaussian() -> None:
    """D-38 of the chapter's differences: only local-p has one in the paper."""
    module = attention("local_m", "dot", window=4, gaussian="paper")
    found = weights_of(
        module, torch.ones(1, 1, D).double(), torch.ones(1, 21, D).double(), torch.zeros(1, 21).bool(), 10
    )
    torch.testing.assert_close(found[0, 0, 6:15], torch.full((9,), 1 / 9).double())


@pytest.mark.parametrize("kind", ["local_m", "local_p"])
@pytest.mark.parametrize("score", SCORES)
def test_a_window_over_everything_is_global_attention(kind: str, score: str) -> None:
    query, memory, mask = example()
    local = attention(kind, score, window=6, gaussian="none")
    whole = attention("global", score)
    whole.load_state_dict({name: tensor for name, tensor in local.state_dict().items() if name.startswith("score")})
    assert torch.equal(weights_of(local, query, memory, mask), weights_of(whole, query, memory, mask))


def test_a_window_of_ten_touches_21_positions() -> None:
    """CH-42, CH-45: 2D + 1 of T_x: 21/50 = 0.42 and 21/40 = 0.525 of the global scores, fewer at the ends."""
    for src_len, ratio in ((50, 0.42), (40, 0.525)):
        module = attention("local_m", "dot", window=10)
        query, memory = torch.randn(1, src_len, D).double(), torch.randn(1, src_len, D).double()
        touched = (weights_of(module, query, memory, torch.zeros(1, src_len).bool()) > 0).sum(-1)[0]
        assert touched.max() == 21
        assert touched[15].item() / src_len == pytest.approx(ratio)
        assert (touched[0], touched[-1]) == (11, 11)


def n_scored(module: LuongAttention, n: int, src_len: int) -> int:
    """Source positions whose score is computed, for n queries at once."""
    counts: list[int] = []
    hook = module.score.register_forward_hook(lambda _module, _arguments, energies: counts.append(energies.numel()))
    query, memory = torch.randn(1, n, D).double(), torch.randn(1, src_len, D).double()
    mask = torch.zeros(1, src_len, dtype=torch.bool)
    module(query, memory, module.keys(memory), mask, torch.full((1, n), src_len // 2))
    hook.remove()
    return sum(counts)


@pytest.mark.parametrize("kind", ["local_m", "local_p"])
def test_a_step_scores_the_window_alone(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """CH-45: (2D + 1) / T_x of the scores, 0.42 at 50 positions and 0.525 at 40."""
    local, whole = attention(kind, "dot", window=10), attention("global", "dot")
    assert [n_scored(local, 1, src_len) for src_len in (200, 800)] == [21, 21]
    assert n_scored(whole, 1, 800) == 800
    assert n_scored(local, 5, 50) == 5 * 50  # not worth the fetching, so all of them, once
    monkeypatch.setattr(luong_attention, "FETCH_COST", 0)
    assert n_scored(local, 1, 50) / n_scored(whole, 1, 50) == pytest.approx(0.42)
    assert n_scored(local, 5, 40) / n_scored(whole, 5, 40) == pytest.approx(0.525)


@pytest.mark.parametrize("kind", ["local_m", "local_p"])
@pytest.mark.parametrize("score", ["dot", "general", "concat"])
@pytest.mark.parametrize("gaussian", ["paper", "chapter"])
def test_fetching_a_window_changes_neither_values_nor_gradients(
    kind: str, score: str, gaussian: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against scoring all positions and hiding the rest; windows clipped at both ends, and by padding."""
    query, memory, mask = example(n=8)
    module = attention(kind, score, gaussian=gaussian)
    leaves = [query.requires_grad_(), memory.requires_grad_(), *module.parameters()]
    upstream = torch.randn(2, 8, D).double(), torch.randn(2, 8, 6).double()
    found = []
    for cost in (1000, 0):
        monkeypatch.setattr(luong_attention, "FETCH_COST", cost)
        outputs = module(query, memory, module.keys(memory), mask, torch.arange(8)[None])
        found.append((*outputs, *torch.autograd.grad(outputs, leaves, upstream)))
    whole, fetched = found
    for expected, actual in zip(whole, fetched, strict=True):
        torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("gaussian", ["paper", "chapter"])
def test_the_position_is_learned_through_the_gaussian(gaussian: str) -> None:
    """CH-44: a gradient reaches W_p and v_p."""
    query, memory, mask = example()
    module = attention("local_p", gaussian=gaussian)
    context, _ = module(query, memory, module.keys(memory), mask, torch.arange(3)[None])
    context.square().sum().backward()
    for parameter in (module.position_hidden.weight, module.position.weight):
        assert parameter.grad is not None
        assert (parameter.grad != 0).any()


def test_a_context_vector_is_the_weighted_sum() -> None:
    query, memory, mask = example()
    module = attention("global")
    context, weights = module(query, memory, module.keys(memory), mask, torch.arange(3)[None])
    torch.testing.assert_close(context, torch.einsum("bns,bsd->bnd", weights, memory))
