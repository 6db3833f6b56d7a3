"""Gated convolutions against torch's own, and how far they see."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import weight_norm
from torch.utils.flop_counter import FlopCounterMode

from mtkit.nn.convolution import GatedConvolution, normalized_linear, windows

SHAPES = [(kernel, dilation) for kernel in (1, 3, 5) for dilation in (1, 2, 3)]


def draw(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def layer(d_in: int, d_out: int, kernel: int, dilation: int = 1, *, causal: bool = False) -> GatedConvolution:
    """In float64, with biases and gains at no special value."""
    torch.manual_seed(3)
    convolution = GatedConvolution(d_in, d_out, kernel, dilation, causal=causal).double().eval()
    with torch.no_grad():
        for parameter in convolution.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return convolution


def gain_and_direction(module: nn.Module) -> tuple[Tensor, Tensor]:
    """g and v of a layer under weight normalisation."""
    parameters = dict(module.named_parameters())
    return parameters["parametrizations.weight.original0"], parameters["parametrizations.weight.original1"]


def as_conv1d(convolution: GatedConvolution) -> nn.Module:
    """torch's weight-normalised convolution with the same direction, gain and bias."""
    linear, kernel = convolution.linear, convolution.kernel
    theirs = nn.Conv1d(linear.in_features // kernel, linear.out_features, kernel, dilation=convolution.dilation)
    theirs = weight_norm(theirs.double(), dim=0)
    (gain, direction), (their_gain, their_direction) = gain_and_direction(linear), gain_and_direction(theirs)
    with torch.no_grad():
        their_gain.copy_(gain[:, :, None])
        their_direction.copy_(direction.unflatten(1, (kernel, -1)).transpose(1, 2))
        dict(theirs.named_parameters())["bias"].copy_(linear.bias)
    return theirs


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("kernel", "dilation"), SHAPES)
def test_a_gated_convolution_equals_torchs_with_its_weight_norm(kernel: int, dilation: int, causal: bool) -> None:
    """Values, and gradients of input, gain, direction and bias."""
    ours = layer(4, 3, kernel, dilation, causal=causal)
    theirs = as_conv1d(ours)
    x = draw(2, 9, 4).requires_grad_()
    reach = (kernel - 1) * dilation
    before = reach if causal else reach // 2
    padded = F.pad(x.transpose(1, 2), (before, reach - before))
    expected = F.glu(theirs(padded), dim=1).transpose(1, 2)
    found = ours(x)
    torch.testing.assert_close(found, expected)

    upstream = draw(2, 9, 3, seed=2)
    gradients = [torch.autograd.grad(y, [x, *m.parameters()], upstream) for y, m in ((found, ours), (expected, theirs))]
    by_name = dict(zip(["x", *(name for name, _ in ours.named_parameters())], gradients[0], strict=True))
    reference = dict(zip(["x", *(name for name, _ in theirs.named_parameters())], gradients[1], strict=True))
    direction = "parametrizations.weight.original1"
    torch.testing.assert_close(by_name["x"], reference["x"])
    torch.testing.assert_close(by_name["linear.bias"], reference["bias"])
    torch.testing.assert_close(
        by_name["linear.parametrizations.weight.original0"].flatten(),
        reference["parametrizations.weight.original0"].flatten(),
    )
    torch.testing.assert_close(by_name[f"linear.{direction}"], reference[direction].transpose(1, 2).flatten(1))


def test_a_gate_by_hand() -> None:
    """One input, one output, kernel 2 before itself: A = 2 x_{i-1} + 3 x_i, B = ln 3, so sigmoid(B) = 3/4."""
    convolution = GatedConvolution(1, 1, 2, causal=True)
    convolution.linear.weight = torch.tensor([[2.0, 3.0], [1e-12, 0.0]])
    with torch.no_grad():
        convolution.linear.bias.copy_(torch.tensor([0.0, math.log(3)]))
    found = convolution(torch.tensor([[[1.0], [10.0], [100.0]]]))
    assert found.flatten().tolist() == pytest.approx([0.75 * 3, 0.75 * 32, 0.75 * 320], rel=1e-6)


def test_weight_norm_is_gain_times_unit_direction() -> None:
    linear = normalized_linear(5, 3)
    with torch.no_grad():
        gain, direction = gain_and_direction(linear)
        gain.copy_(torch.tensor([[2.0], [0.5], [1.0]]))
        direction[0] = torch.tensor([3.0, 0, 4, 0, 0])
    assert linear.weight[0].tolist() == pytest.approx([1.2, 0, 1.6, 0, 0])
    assert linear.weight.norm(dim=1).tolist() == pytest.approx([2, 0.5, 1])


def test_windows_hold_the_inputs_of_each_position_in_reading_order() -> None:
    x = torch.arange(6.0).view(1, 6, 1)
    assert windows(x, 3, 1)[0].tolist() == [[0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 5]]
    assert windows(x, 3, 2)[0].tolist() == [[0, 2, 4], [1, 3, 5]]
    assert windows(x, 1, 7)[0].tolist() == [[0], [1], [2], [3], [4], [5]]


@pytest.mark.parametrize(("gain", "keep"), [(1.0, 1.0), (4.0, 0.8)])
def test_initial_weights_have_the_variance_of_the_paper(gain: float, keep: float) -> None:
    """Gehring et al. (2017), §3.5: N(0, p/n), before a gate N(0, 4p/n); biases 0."""
    torch.manual_seed(2)
    linear = normalized_linear(300, 400, gain=gain, keep=keep)
    n_weights = 300 * 400
    variance = linear.weight.square().mean().item()
    assert variance == pytest.approx(gain * keep / 300, rel=4 * math.sqrt(2 / n_weights))
    assert linear.bias.eq(0).all()


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_a_new_gated_convolution_keeps_the_variance_of_a_small_input(dropout: float) -> None:
    torch.manual_seed(4)
    convolution = GatedConvolution(200, 300, 3, causal=False, dropout=dropout).train()
    x = 0.05 * torch.randn(8, 100, 200)
    inside = convolution(x)[:, 1:-1]
    assert inside.var().item() == pytest.approx(0.05**2, rel=0.05)


@pytest.mark.parametrize(("kernel", "dilation"), [*SHAPES, (2, 1), (4, 2)])
def test_steps_equal_the_whole_sequence(kernel: int, dilation: int) -> None:
    convolution = layer(4, 3, kernel, dilation, causal=True)
    x = draw(2, 11, 4)
    past = convolution.nothing(2, x)
    outputs = []
    for position in range(11):
        output, past = convolution.step(x[:, position : position + 1], past)
        assert past.shape == (2, (kernel - 1) * dilation, 4), "constant in size"
        outputs.append(output)
    torch.testing.assert_close(torch.cat(outputs, dim=1), convolution(x))


def test_a_causal_convolution_sees_nothing_behind_a_position() -> None:
    """CH-108"""
    convolution = layer(4, 3, 3, 2, causal=True)
    x = draw(1, 12, 4)
    before = convolution(x)
    for position in range(12):
        changed = x.clone()
        changed[:, position] += 1
        differs = (convolution(changed) - before).abs().amax(dim=(0, 2)) > 0
        assert differs.nonzero().flatten().tolist() == [i for i in (position, position + 2, position + 4) if i < 12]


def test_an_even_kernel_has_no_middle() -> None:
    with pytest.raises(ValueError, match="kernel 2 with dilation 1 has no middle"):
        GatedConvolution(4, 4, 2, causal=False)
    assert GatedConvolution(4, 4, 2, causal=True).reach == 1


def seen_by(position: int, length: int, kernel: int, dilations: Sequence[int], *, causal: bool) -> list[int]:
    """Probing: the inputs from which the gradient of one output of a stack is not zero."""
    x = draw(1, length, 2).requires_grad_()
    y: Tensor = x
    for dilation in dilations:
        y = layer(2, 2, kernel, dilation, causal=causal)(y)
    (gradient,) = torch.autograd.grad(y[0, position].sum(), x)
    return gradient[0].abs().amax(dim=1).nonzero().flatten().tolist()


def consecutive(numbers: list[int]) -> bool:
    return numbers == list(range(numbers[0], numbers[-1] + 1))


@pytest.mark.parametrize("n_layers", [1, 2, 3, 4])
@pytest.mark.parametrize("kernel", [1, 3, 5, 7])
@pytest.mark.parametrize("causal", [False, True])
def test_l_layers_see_l_times_k_minus_1_plus_1_positions(kernel: int, n_layers: int, causal: bool) -> None:
    """CH-123; e.g. six blocks with k = 5 see 25 (Gehring et al. 2017, §3.2)."""
    length = 61
    position = length - 1 if causal else length // 2
    seen = seen_by(position, length, kernel, [1] * n_layers, causal=causal)
    assert consecutive(seen)
    assert len(seen) == n_layers * (kernel - 1) + 1


def test_six_blocks_of_kernel_5_see_25_inputs() -> None:
    """CH-123, the paper's own example (§3.2)"""
    assert len(seen_by(30, 61, 5, [1] * 6, causal=False)) == 25


@pytest.mark.parametrize(
    ("kernel", "n_layers", "causal"),
    [(2, 6, True)]  # an even kernel has no middle
    + [(kernel, n_layers, causal) for kernel, n_layers in [(3, 1), (3, 3), (3, 4), (5, 3)] for causal in (False, True)],
)
def test_rates_that_are_powers_of_k_see_k_to_the_l_positions(kernel: int, n_layers: int, causal: bool) -> None:
    """CH-123"""
    field = kernel**n_layers
    length = field + 20
    position = length - 1 if causal else length // 2
    seen = seen_by(position, length, kernel, [kernel**i for i in range(n_layers)], causal=causal)
    assert consecutive(seen)
    assert len(seen) == field


@pytest.mark.parametrize("n_layers", [1, 2, 3, 4, 5])
def test_doubling_rates_see_1_plus_k_minus_1_times_2_to_the_l_minus_1(n_layers: int) -> None:
    """CH-123: not k^l; five layers with k = 3 see 63 positions, where 3^5 = 243."""
    seen = seen_by(79, 80, 3, [2**i for i in range(n_layers)], causal=True)
    assert consecutive(seen)
    assert len(seen) == 1 + 2 * (2**n_layers - 1)
    if n_layers == 5:
        assert len(seen) == 63


def test_thirty_layers_of_bytenet_see_373_positions() -> None:
    """CH-123: rates 1, 2, 4, 8, 16, six times over"""
    seen = seen_by(389, 390, 3, [1, 2, 4, 8, 16] * 6, causal=True)
    assert consecutive(seen)
    assert len(seen) == 373


@pytest.mark.parametrize("kernel", [3, 5])
def test_the_path_between_two_positions_is_their_distance_over_the_half_kernel(kernel: int) -> None:
    """CH-122: i and j meet first in layer ceil(2 |i - j| / (k - 1))."""
    length = 13
    for depth in range(1, 5):
        for i in range(length):
            near = [j for j in range(length) if math.ceil(2 * abs(i - j) / (kernel - 1)) <= depth]
            assert seen_by(i, length, kernel, [1] * depth, causal=False) == near


@pytest.mark.parametrize("kernel", [2, 3, 5])
def test_the_causal_path_is_the_distance_over_the_kernel(kernel: int) -> None:
    """CH-122: j <= i meet first in layer ceil(|i - j| / (k - 1))."""
    length = 13
    for depth in range(1, 5):
        for i in range(length):
            near = [j for j in range(i + 1) if math.ceil((i - j) / (kernel - 1)) <= depth]
            assert seen_by(i, length, kernel, [1] * depth, causal=True) == near


@pytest.mark.parametrize(("length", "d", "kernel"), [(10, 16, 3), (20, 16, 3), (10, 32, 3), (10, 16, 5)])
def test_the_products_of_a_layer_are_k_n_d_squared(length: int, d: int, kernel: int) -> None:
    """CH-124: 2 FLOPs each, twice over for the gate."""
    convolution = GatedConvolution(d, d, kernel, causal=False)
    with FlopCounterMode(display=False) as counter:
        convolution(torch.randn(1, length, d))
    assert counter.get_total_flops() == 2 * kernel * length * d * 2 * d


def test_autocast_makes_bf16_products_close_to_fp32() -> None:
    convolution = layer(32, 32, 3).float()
    x = draw(2, 9, 32).float()
    with torch.autocast("cpu", torch.bfloat16):
        low = convolution(x)
    assert low.dtype == torch.bfloat16
    exact = convolution(x)
    torch.testing.assert_close(low.float(), exact, rtol=0, atol=0.03 * exact.abs().max().item())
