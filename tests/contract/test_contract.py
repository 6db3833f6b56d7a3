"""What every backend promises to search and training; a new file in mtkit/models is found and tested here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pydantic
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from mtkit import models
from mtkit.checkpoint import saved_model, unique_tensors
from mtkit.data.batch import make_source
from mtkit.models import Memory, Step, TranslationModel, select_rows
from mtkit.text.tokenizer import BOS_ID

TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}
SRC_ROWS = [[4, 5, 6, 7, 8, 9], [9, 4], [], [10, 10, 1, 5]]


MakeModel = Callable[..., TranslationModel]


class Example(NamedTuple):
    src: Tensor  # [4, 7], ends with EOS before the padding
    src_pad_mask: Tensor
    trg_in: Tensor  # [4, 5], starts with BOS


@pytest.fixture
def example() -> Example:
    """Among the sources an empty line and an unknown token."""
    trg = torch.tensor([[4, 9, 9, 5], [7, 4, 1, 6], [5, 8, 6, 10], [6, 6, 4, 7]])
    return Example(*sources(SRC_ROWS), torch.cat([torch.full((4, 1), BOS_ID), trg], dim=1))


def sources(rows: list[list[int]]) -> tuple[Tensor, Tensor]:
    """Padded rows with EOS at their ends, and the padding mask."""
    return make_source([np.array(row, dtype=np.int32) for row in rows])


class Run(NamedTuple):
    """Teacher forcing by single steps."""

    logits: Tensor  # [batch, trg_len, trg_vocab]
    steps: list[Step]


def run_steps(model: TranslationModel, memory: Memory, trg_in: Tensor, *, need_attention: bool = False) -> Run:
    state, steps = model.start(memory), []
    for prev in trg_in.unbind(1):
        steps.append(model.step(prev, state, memory, need_attention=need_attention))
        state = steps[-1].state
    return Run(torch.stack([step.logits for step in steps], dim=1), steps)


def tensors_of(tree: Any) -> list[Tensor]:
    if isinstance(tree, Tensor):
        return [tree]
    return [tensor for part in tree for tensor in tensors_of(part)] if isinstance(tree, tuple) else []


def repeated(memory: Memory, k: int) -> Memory:
    return select_rows(memory, torch.arange(len(memory.states)).repeat_interleave(k))


def test_every_backend_has_documented_fields_and_a_tiny_preset(backend: str) -> None:
    module = models.load(backend)
    assert module.__doc__
    assert all(field.description for field in module.Config.model_fields.values())
    idle = module.Config.ONLY_WITH
    sizes = {name: value for name, value in module.PRESETS["tiny"].model_dump().items() if name not in idle}
    assert all(value is None or value <= 32 for name, value in sizes.items() if name.startswith("d_"))
    assert all(value == 0 for name, value in sizes.items() if "dropout" in name)


def test_a_config_is_frozen_and_refuses_unknown_keys(backend: str) -> None:
    module = models.load(backend)
    with pytest.raises(pydantic.ValidationError, match="no_such_key"):
        module.Config(no_such_key=1)
    with pytest.raises(pydantic.ValidationError, match="frozen"):
        module.PRESETS["tiny"].dropout = 0.5


def test_forward_is_features_through_the_output_layer(model: TranslationModel, example: Example) -> None:
    features = model.features(*example)
    logits = model(*example)
    assert features.shape[:2] == example.trg_in.shape
    assert logits.shape[:2] == example.trg_in.shape
    torch.testing.assert_close(model.output(features), logits, **TOLERANCE)


def test_forward_equals_stacked_steps(model: TranslationModel, example: Example) -> None:
    memory = model.encode(example.src, example.src_pad_mask)
    stepped = run_steps(model, memory, example.trg_in).logits
    torch.testing.assert_close(model(*example), stepped, **TOLERANCE)


def test_gradients_of_forward_and_of_stacked_steps_are_equal(make_model: MakeModel, example: Example) -> None:
    model = make_model().double()
    memory = model.encode(example.src, example.src_pad_mask)
    stepped = run_steps(model, memory, example.trg_in).logits
    upstream = torch.randn_like(stepped)
    parameters = list(model.parameters())
    by_steps = torch.autograd.grad(stepped, parameters, upstream)
    by_forward = torch.autograd.grad(model(*example), parameters, upstream)
    for (name, _), expected, actual in zip(model.named_parameters(), by_steps, by_forward, strict=True):
        torch.testing.assert_close(
            actual, expected, rtol=1e-5, atol=1e-6, msg=lambda text, name=name: f"{name}: {text}"
        )


def test_one_target_token_is_enough(model: TranslationModel, example: Example) -> None:
    first = model(example.src, example.src_pad_mask, example.trg_in[:, :1])
    torch.testing.assert_close(first, model(*example)[:, :1], **TOLERANCE)


def test_padding_and_neighbours_change_nothing(model: TranslationModel, example: Example) -> None:
    together = model(*example)
    for row, (src, mask, trg_in) in enumerate(zip(*example, strict=True)):
        alone = model(src[~mask][None], mask[~mask][None], trg_in[None])
        torch.testing.assert_close(alone[0], together[row], **TOLERANCE)


def test_more_padding_changes_nothing(model: TranslationModel, example: Example) -> None:
    src, src_pad_mask = sources([*SRC_ROWS, [5] * 12])
    wider = model(src[:-1], src_pad_mask[:-1], example.trg_in)
    torch.testing.assert_close(wider, model(*example), **TOLERANCE)


def test_encoder_states_of_real_tokens_do_not_see_padding(model: TranslationModel) -> None:
    alone = model.encode(*sources([[7, 5]])).states
    src, src_pad_mask = sources([[7, 5], [4, 5, 6, 7, 8, 9]])
    padded = model.encode(src, src_pad_mask).states[:1, :3]
    torch.testing.assert_close(padded, alone, **TOLERANCE)


def test_batch_order_changes_nothing(model: TranslationModel, example: Example) -> None:
    order = torch.tensor([2, 0, 3, 1])
    shuffled = model(*(part[order] for part in example))
    torch.testing.assert_close(shuffled, model(*example)[order], **TOLERANCE)


def test_no_output_sees_a_later_target_token(model: TranslationModel, example: Example) -> None:
    logits = model(*example)
    for t in range(1, example.trg_in.shape[1]):
        changed = example.trg_in.clone()
        changed[:, t:] = 4 + (changed[:, t:] + 1) % 7
        later = model(example.src, example.src_pad_mask, changed)
        torch.testing.assert_close(later[:, :t], logits[:, :t], **TOLERANCE)
        assert not torch.allclose(later[:, t], logits[:, t], **TOLERANCE)


def test_every_output_sees_the_source(model: TranslationModel, example: Example) -> None:
    changed = example.src.clone()
    changed[0, 0] = 10
    difference = (model(changed, example.src_pad_mask, example.trg_in) - model(*example)).abs().amax(dim=2)
    assert (difference[0] > 1e-5).all()
    assert (difference[1:] < 1e-5).all()


def test_training_and_eval_mode_agree_without_dropout(model: TranslationModel, example: Example) -> None:
    expected = model(*example)
    torch.testing.assert_close(model.train()(*example), expected, **TOLERANCE)


def test_dropout_acts_in_training_only(make_model: MakeModel, example: Example) -> None:
    without, with_dropout = make_model(), make_model(dropout=0.5)
    with_dropout.load_state_dict(without.state_dict())  # a backend may draw its weights by the rate
    torch.testing.assert_close(with_dropout(*example), without(*example), **TOLERANCE)
    with_dropout.train()
    assert not torch.allclose(with_dropout(*example), with_dropout(*example))


def test_step_leaves_its_arguments_alone(model: TranslationModel, example: Example) -> None:
    memory = model.encode(example.src, example.src_pad_mask)
    state = model.step(example.trg_in[:, 0], model.start(memory), memory).state
    arguments = (example.trg_in[:, 1].clone(), state, memory)
    before = [tensor.clone() for tensor in tensors_of(arguments)]
    first = model.step(*arguments, need_attention=True)
    second = model.step(*arguments, need_attention=True)
    assert all(map(torch.equal, tensors_of(arguments), before))
    assert all(map(torch.equal, tensors_of(first[:2]), tensors_of(second[:2])))


def test_attention_is_a_distribution_over_real_tokens(model: TranslationModel, example: Example) -> None:
    memory = model.encode(example.src, example.src_pad_mask)
    for step in run_steps(model, memory, example.trg_in, need_attention=True).steps:
        if not model.has_attention:
            assert step.attention is None
            continue
        assert step.attention is not None
        assert step.attention.shape == example.src.shape
        assert (step.attention >= 0).all()
        assert (step.attention[example.src_pad_mask] == 0).all()
        assert (step.attention.sum(dim=1) <= 1 + 1e-5).all()
        assert (step.attention.sum(dim=1) > 0).all()


def test_asking_for_attention_leaves_the_rest_alone(model: TranslationModel, example: Example) -> None:
    memory = model.encode(example.src, example.src_pad_mask)
    asked = run_steps(model, memory, example.trg_in, need_attention=True)
    silent = run_steps(model, memory, example.trg_in)
    torch.testing.assert_close(asked.logits, silent.logits, **TOLERANCE)
    torch.testing.assert_close(tensors_of(asked.steps[-1].state), tensors_of(silent.steps[-1].state), **TOLERANCE)
    assert all(step.attention is None for step in silent.steps)


def test_rows_of_a_state_are_those_of_the_batch(model: TranslationModel, example: Example) -> None:
    memory = model.encode(example.src, example.src_pad_mask)
    steps = run_steps(model, memory, example.trg_in).steps
    for tree in (memory, model.start(memory), steps[0].state, steps[-1].state):
        assert all(len(tensor) == 4 for tensor in tensors_of(tree))


def test_chosen_rows_go_on_as_they_would_have(model: TranslationModel, example: Example) -> None:
    memory = model.encode(example.src, example.src_pad_mask)
    rows = torch.tensor([3, 0, 0])
    expected = run_steps(model, memory, example.trg_in).logits[rows]
    state = run_steps(model, memory, example.trg_in[:, :2]).steps[-1].state
    memory, state = select_rows(memory, rows), select_rows(state, rows)
    for t in range(2, example.trg_in.shape[1]):
        step = model.step(example.trg_in[rows, t], state, memory)
        state = step.state
        torch.testing.assert_close(step.logits, expected[:, t], **TOLERANCE)


def test_beams_of_a_sentence_share_its_memory(model: TranslationModel, example: Example) -> None:
    k = 3
    memory = model.encode(example.src, example.src_pad_mask)
    state = select_rows(model.start(memory), torch.arange(4).repeat_interleave(k))
    copied, copied_state = repeated(memory, k), state
    tokens = 4 + torch.arange(4 * k * 3).view(4 * k, 3) % 7  # every beam another prefix
    for prev in tokens.unbind(1):
        shared = model.step(prev, state, memory, need_attention=True)
        apart = model.step(prev, copied_state, copied, need_attention=True)
        state, copied_state = shared.state, apart.state
        torch.testing.assert_close(shared.logits, apart.logits, **TOLERANCE)
        if model.has_attention:
            torch.testing.assert_close(shared.attention, apart.attention, **TOLERANCE)


def test_every_parameter_gets_a_gradient(model: TranslationModel, example: Example) -> None:
    logits = model.train()(*example)
    (logits * torch.randn_like(logits)).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert (parameter.grad != 0).any(), name


def test_bfloat16_autocast_stays_close_to_float32(model: TranslationModel, example: Example) -> None:
    logits = model(*example)
    with torch.autocast("cpu", torch.bfloat16):
        memory = model.encode(example.src, example.src_pad_mask)
        stepped = run_steps(model, memory, example.trg_in).logits
        low = model(*example)
    scale = logits.abs().max().item()
    torch.testing.assert_close(low.float(), logits, rtol=0, atol=0.05 * scale)
    torch.testing.assert_close(stepped.float(), logits, rtol=0, atol=0.05 * scale)
    low.float().square().sum().backward()
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in model.parameters())


def test_a_model_comes_back_from_its_file(
    make_model: MakeModel, section: dict[str, Any], example: Example, tmp_path: Path
) -> None:
    """No weight is drawn that the file has, what is tied is tied again, and nothing is left without memory."""
    saved, file = make_model(), tmp_path / "model.safetensors"
    save_file(unique_tensors(saved), file)
    random_state = torch.get_rng_state()
    loaded = saved_model(section, 11, 11, load_file(file), file).eval()
    assert torch.equal(torch.get_rng_state(), random_state)
    assert torch.equal(loaded(*example), saved(*example))
    assert [name for name, _ in loaded.named_parameters()] == [name for name, _ in saved.named_parameters()]
    assert all(parameter.requires_grad for parameter in loaded.parameters())
    assert not [name for name, tensor in (*loaded.named_parameters(), *loaded.named_buffers()) if tensor.is_meta]
    long = torch.full((1, 300), BOS_ID + 2)
    nothing = torch.zeros(1, 300, dtype=torch.bool)
    assert torch.equal(loaded(long, nothing, long), saved(long, nothing, long)), "what is computed for more positions"


def test_the_seed_decides_the_first_weights(backend: str) -> None:
    def weights() -> list[Tensor]:
        torch.manual_seed(5)
        return list(models.build({"type": backend, "preset": "tiny"}, 11, 11, 0).state_dict().values())

    assert all(map(torch.equal, weights(), weights()))
