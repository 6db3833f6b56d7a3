"""The loop: what an update is made of, when it ends, what it keeps, and what stops it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from mtkit import models
from mtkit.checkpoint import (
    average,
    checkpoints_folder,
    list_updates,
    load_checkpoint,
    load_model,
    read_pointer,
    read_state,
    read_tensors,
)
from mtkit.errors import DivergedError, MtkitError, TrainingError
from mtkit.models import Memory, State, Step, TranslationModel
from mtkit.recipe import Recipe, TrainSection
from mtkit.train import trainer as trainer_module
from mtkit.train.experiment import train
from mtkit.train.log import LOG_FILE, TrainingLog, read_metrics
from mtkit.train.loss import TokenLoss
from mtkit.train.signals import StopRequest
from mtkit.train.trainer import DevTask, Trainer
from mtkit.train.validation import DevScores, DevSet

MakeRecipe = Callable[..., Recipe]
EOS, V = 3, 8


class Rows:
    """A store of rows in memory: what the trainer needs of a TokenStore."""

    def __init__(self, src: list[list[int]], trg: list[list[int]]) -> None:
        self.src, self.trg = src, trg
        self.src_lengths, self.trg_lengths = (
            np.array([len(row) + 1 for row in rows], dtype=np.int32) for rows in (src, trg)
        )
        self.asked: list[int] = []

    def rows(self, indices: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray]]:
        self.asked += [int(index) for index in indices]
        return [np.array(self.src[i], dtype=np.int32) for i in indices], [
            np.array(self.trg[i], dtype=np.int32) for i in indices
        ]


class KnownCost(TranslationModel):
    """Costs 4 nats a token after the source token 5 and 2 nats after 6, as long as `shift` is 0."""

    has_attention = False

    def __init__(self) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(()))
        self.output = nn.Identity()

    def features(self, src: Tensor, src_pad_mask: Tensor, trg_in: Tensor) -> Tensor:
        cost = torch.where(src[:, :1] == 5, 4.0, 2.0)
        # p(EOS) = e^x / (e^x + V - 1) = e^-cost
        logit = torch.log((V - 1) / (cost.exp() - 1)).expand_as(trg_in)
        return nn.functional.one_hot(torch.full_like(trg_in, EOS), V) * (logit + self.shift)[..., None]

    def encode(self, src: Tensor, src_pad_mask: Tensor) -> Memory:
        raise NotImplementedError

    def start(self, memory: Memory) -> State:
        raise NotImplementedError

    def step(self, prev: Tensor, state: State, memory: Memory, *, need_attention: bool = False) -> Step:
        raise NotImplementedError


@pytest.fixture
def sgd(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain gradient descent: Adam would hide the size of a gradient."""
    monkeypatch.setattr(
        trainer_module, "build_optimizer", lambda model, section: torch.optim.SGD(model.parameters(), lr=section.lr)
    )


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[float]], None]:
    """(dev BLEU of the first validation, of the second, …): validations that look at nothing."""

    def script(values: list[float]) -> None:
        coming = iter(values)

        def validate(*_: Any) -> DevScores:
            value = next(coming)
            return DevScores(value, value, "scripted", ["a translation"] * 6)

        monkeypatch.setattr(trainer_module, "validate", validate)

    return script


def train_section(**keys: Any) -> TrainSection:
    fixed = {"batch_tokens": 1000, "schedule": "constant", "warmup_updates": 0, "lr": 1.0, "clip_norm": None}
    return TrainSection(**{**fixed, "label_smoothing": 0.0, "precision": "fp32", **keys})


def build_trainer(run: Path, model: TranslationModel, store: Rows, section: TrainSection) -> Trainer:
    return Trainer(
        run,
        model,
        section,
        store,  # type: ignore[arg-type]
        DevTask(DevSet([], [], [], []), None, "b"),  # type: ignore[arg-type]
        TrainingLog(run),
        device=torch.device("cpu"),
        precision="fp32",
        d_model=None,
        saved_with_model={},
    )


def run_updates(trainer: Trainer, batches: list[list[int]] | None = None) -> None:
    if batches is not None:
        trainer.epoch_batches = [np.array(batch) for batch in batches]
    trainer.train(StopRequest())
    trainer.log.close()


# ---- an update ----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("sgd")
@pytest.mark.parametrize(("accumulate", "batches"), [(2, [[0], [1]]), (1, [[0, 1]])])
def test_every_token_weighs_the_same_however_the_update_is_cut(
    tmp_path: Path, scripted: Callable[[list[float]], None], accumulate: int, batches: list[list[int]]
) -> None:
    """One token that costs 4 nats and three that cost 2: the mean is 10/4, not (4 + 2)/2."""
    scripted([0.0])
    model = KnownCost()
    trainer = build_trainer(
        tmp_path,
        model,
        Rows([[5], [6]], [[], [EOS, EOS]]),
        train_section(updates=1, accumulate=accumulate, report_every=1),
    )
    run_updates(trainer, batches)
    reported = read_metrics(tmp_path)[0]
    assert reported["loss_nats"] == pytest.approx(2.5, rel=1e-6)
    assert reported["trg_tokens"] == 4
    # d cost / d shift = p(EOS) - 1 at each token; the step is minus their mean
    assert model.shift.item() == pytest.approx((1 - math.exp(-4) + 3 * (1 - math.exp(-2))) / 4, rel=1e-5)


@pytest.mark.usefixtures("sgd")
@pytest.mark.parametrize(("accumulate", "batches"), [(2, [[0], [1]]), (1, [[0, 1]])])
def test_a_gradient_may_be_divided_by_sentences(
    tmp_path: Path, scripted: Callable[[list[float]], None], accumulate: int, batches: list[list[int]]
) -> None:
    """Sutskever et al. (2014), §3.4: the sum over the batch divided by its 128 sentences; here by two."""
    scripted([0.0])
    model = KnownCost()
    section = train_section(updates=1, accumulate=accumulate, normalize="sentences", report_every=1)
    run_updates(build_trainer(tmp_path, model, Rows([[5], [6]], [[], [EOS, EOS]]), section), batches)
    assert model.shift.item() == pytest.approx((1 - math.exp(-4) + 3 * (1 - math.exp(-2))) / 2, rel=1e-5)
    assert read_metrics(tmp_path)[0]["loss_nats"] == pytest.approx(2.5, rel=1e-6), "figures stay those of a token"


@pytest.mark.usefixtures("sgd")
def test_the_smoothed_loss_is_minimised_and_that_of_the_reference_reported(
    tmp_path: Path, scripted: Callable[[list[float]], None]
) -> None:
    """Szegedy et al. (2016), §7, one token that costs 2 nats, 0.1 spread over the eight of the vocabulary: p(EOS) is
    e^-2, that of each other token a seventh of the rest.
    """
    scripted([0.0])
    model = KnownCost()
    section = train_section(updates=1, label_smoothing=0.1, report_every=1)
    run_updates(build_trainer(tmp_path, model, Rows([[6]], [[]]), section))
    reported = read_metrics(tmp_path)[0]
    others = -math.log((1 - math.exp(-2)) / (V - 1))
    assert reported["loss_nats"] == pytest.approx(2, rel=1e-6)
    assert reported["ppl"] == pytest.approx(math.exp(2), rel=1e-6)
    assert reported["smoothed_loss_nats"] == pytest.approx(0.9 * 2 + 0.1 * (2 + 7 * others) / V, rel=1e-6)
    # the step is the target's probability of EOS less the model's
    assert model.shift.item() == pytest.approx(0.9 + 0.1 / V - math.exp(-2), rel=1e-5)


@pytest.mark.parametrize(
    ("accumulate", "expected"),
    [(1, [1, 1, 1, 1, 0.5, 0.5, 0.25, 0.25, 0.125, 0.125]), (2, [1, 1, 0.5, 0.25, 0.125])],
)
def test_halving_begins_with_the_first_update_after_its_epochs(
    tmp_path: Path, scripted: Callable[[list[float]], None], accumulate: int, expected: list[float]
) -> None:
    """Four batches an epoch: Sutskever's decay with 1 epoch before it in place of 5, and 2.5 epochs in all."""
    scripted([0.0])
    halving = {"schedule": "halving", "decay_after": 1, "decay_every": 0.5}
    section = train_section(epochs=2.5, batch_sentences=1, accumulate=accumulate, report_every=1, **halving)
    run_updates(build_trainer(tmp_path, KnownCost(), Rows([[5]] * 4, [[]] * 4), section))
    assert [entry["lr"] for entry in read_metrics(tmp_path) if "lr" in entry] == expected


def test_a_dev_loss_that_is_no_number_is_no_lowest_one(tmp_path: Path, scripted: Callable[[list[float]], None]) -> None:
    scripted([math.nan, 4.0, 3.0])
    section = train_section(updates=3, schedule="plateau", lr=0.25, validate_every=1, report_every=1)
    run_updates(build_trainer(tmp_path, KnownCost(), Rows([[6]], [[]]), section))
    assert [entry["lr"] for entry in read_metrics(tmp_path) if "lr" in entry] == [0.25, 0.125, 0.125]


def test_a_plateau_lowers_the_rate_and_ends_the_run(tmp_path: Path, scripted: Callable[[list[float]], None]) -> None:
    """Dev losses 5, 4, 4.5, 4.2, 3, 3: worse than the lowest so far at the third, fourth and sixth look."""
    scripted([5.0, 4.0, 4.5, 4.2, 3.0, 3.0, 9.0])
    section = train_section(
        updates=99, schedule="plateau", lr=0.25, decay_factor=0.1, min_lr=5e-4, validate_every=1, report_every=1
    )
    trainer = build_trainer(tmp_path, KnownCost(), Rows([[6]], [[]]), section)
    outcome = trainer.train(StopRequest())
    trainer.log.close()
    rates = [entry["lr"] for entry in read_metrics(tmp_path) if "lr" in entry]
    assert rates == pytest.approx([0.25, 0.25, 0.25, 0.025, 0.0025, 0.0025])
    assert (outcome.update, outcome.reason) == (6, "a learning rate below 0.0005")


def test_a_warm_up_is_no_plateau(tmp_path: Path, scripted: Callable[[list[float]], None]) -> None:
    """The first of its rates is below min_lr, and nothing has been learned yet."""
    scripted([3.0, 2.0])
    section = train_section(
        updates=4, schedule="plateau", lr=0.25, warmup_updates=1000, min_lr=0.01, validate_every=2, report_every=1
    )
    trainer = build_trainer(tmp_path, KnownCost(), Rows([[6]], [[]]), section)
    outcome = trainer.train(StopRequest())
    assert (outcome.update, outcome.reason) == (4, "4 updates")


@pytest.mark.usefixtures("sgd")
def test_two_half_batches_make_the_update_of_one_batch(tmp_path: Path, scripted: Callable[[list[float]], None]) -> None:
    pairs = [[4, 5], [6], [7, 7, 5, 4], [5, 6, 4]]
    found = []
    for accumulate, batches in ((2, [[0, 2], [1, 3]]), (1, [[0, 1, 2, 3]])):
        scripted([0.0])
        torch.manual_seed(1)
        model = models.build({"type": "transformer", "preset": "tiny"}, V, V, 0)
        run = tmp_path / str(accumulate)
        run.mkdir()
        section = train_section(updates=1, accumulate=accumulate, label_smoothing=0.1, clip_norm=0.5)
        run_updates(build_trainer(run, model, Rows(pairs, pairs), section), batches)
        found.append(dict(model.named_parameters()))
    torch.manual_seed(1)
    fresh = dict(models.build({"type": "transformer", "preset": "tiny"}, V, V, 0).named_parameters())
    for name, parameter in found[0].items():
        assert torch.allclose(parameter, found[1][name], rtol=1e-5, atol=1e-6), name
    assert any(not torch.allclose(parameter, fresh[name]) for name, parameter in found[0].items())


@pytest.mark.usefixtures("sgd")
def test_the_gradient_is_clipped_to_its_longest_norm(tmp_path: Path, scripted: Callable[[list[float]], None]) -> None:
    scripted([0.0])
    model = KnownCost()
    run_updates(build_trainer(tmp_path, model, Rows([[6]], [[]]), train_section(updates=1, clip_norm=0.25)))
    assert model.shift.item() == pytest.approx(0.25, rel=1e-3)  # the gradient is e^-2 - 1 = -0.86


@pytest.mark.parametrize("accumulate", [1, 3])
def test_each_pair_comes_once_an_epoch(
    tmp_path: Path, scripted: Callable[[list[float]], None], accumulate: int
) -> None:
    scripted([0.0])
    n_pairs = 23
    store = Rows([[6] * (number % 5) for number in range(n_pairs)], [[EOS] * (number % 3) for number in range(n_pairs)])
    section = train_section(epochs=3, batch_tokens=9, accumulate=accumulate, lr=1e-9)
    trainer = build_trainer(tmp_path, KnownCost(), store, section)
    run_updates(trainer)
    assert Counter(store.asked) == {number: 3 for number in range(n_pairs)}
    for epoch in range(3):
        assert sorted(store.asked[epoch * n_pairs : (epoch + 1) * n_pairs]) == list(range(n_pairs))
    assert trainer.position.epoch == 3


# ---- stopping rules -----------------------------------------------------------------------------------------------


def test_a_part_of_an_epoch_can_be_asked_for(tmp_path: Path, scripted: Callable[[list[float]], None]) -> None:
    scripted([0.0])
    trainer = build_trainer(
        tmp_path, KnownCost(), Rows([[6]] * 4, [[]] * 4), train_section(epochs=1.5, batch_tokens=2, lr=1e-9)
    )
    run_updates(trainer)
    assert len(trainer.epoch_batches) == 4
    assert trainer.position.update == 6


def test_minutes_end_a_run(
    tmp_path: Path, scripted: Callable[[list[float]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted([0.0])
    clock = iter(range(0, 10**6, 20))  # 20 seconds between two looks
    monkeypatch.setattr(trainer_module, "time", SimpleNamespace(monotonic=lambda: float(next(clock))))
    trainer = build_trainer(tmp_path, KnownCost(), Rows([[6]], [[]]), train_section(max_minutes=10, lr=1e-9))
    outcome = trainer.train(StopRequest())
    assert outcome.reason == "10 minutes"
    assert not outcome.interrupted
    assert 0 < outcome.update < 30, "10 minutes are 30 looks"
    assert list_updates(tmp_path)[-1] == outcome.update


def test_minutes_are_those_of_all_parts_of_a_run(
    tmp_path: Path, scripted: Callable[[list[float]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted([0.0] * 3)
    clock = iter(range(0, 10**6, 20))
    monkeypatch.setattr(trainer_module, "time", SimpleNamespace(monotonic=lambda: float(next(clock))))
    keys = {"max_minutes": 60, "lr": 1e-9}

    def trainer_of(name: str, **more: Any) -> Trainer:
        (tmp_path / name).mkdir(exist_ok=True)
        return build_trainer(tmp_path / name, KnownCost(), Rows([[6]], [[]]), train_section(**keys, **more))

    whole = trainer_of("whole").train(StopRequest())
    half = whole.update // 2
    assert trainer_of("run", updates=half).train(StopRequest()).update == half > 5
    again, folder = trainer_of("run"), checkpoints_folder(tmp_path / "run") / f"update-{half}"
    again.restore(load_checkpoint(folder), folder)
    outcome = again.train(StopRequest())
    assert outcome.reason == whole.reason == "60 minutes"
    assert abs(outcome.update - whole.update) <= 3, "a part looks at the clock as it begins and ends, too"


def test_patience_ends_a_run(tmp_path: Path, scripted: Callable[[list[float]], None]) -> None:
    scripted([10.0, 11.0, 11.0, 10.9])
    section = train_section(updates=100, validate_every=2, patience=2, lr=1e-9)
    trainer = build_trainer(tmp_path, KnownCost(), Rows([[6]], [[]]), section)
    outcome = trainer.train(StopRequest())
    assert outcome.update == 8
    assert outcome.reason == "2 validations without improvement"
    assert (outcome.best, outcome.best_name) == (11.0, "update-4")
    assert read_pointer(tmp_path, "best") == "update-4"


@pytest.mark.parametrize(("metric", "best", "name"), [("loss", 1.0, "update-2"), ("bleu", 9.0, "update-3")])
def test_the_best_is_that_of_the_metric_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, metric: str, best: float, name: str
) -> None:
    coming = iter([(3.0, 5.0), (1.0, 4.0), (2.0, 9.0)])
    monkeypatch.setattr(trainer_module, "validate", lambda *_: DevScores(*next(coming), "scripted", ["x"] * 6))
    section = train_section(updates=3, validate_every=1, best_metric=metric, lr=1e-9)
    outcome = build_trainer(tmp_path, KnownCost(), Rows([[6]], [[]]), section).train(StopRequest())
    assert (outcome.best, outcome.best_name) == (best, name)
    assert read_pointer(tmp_path, "best") == name


# ---- losses that are no numbers -----------------------------------------------------------------------------------


def spoil(monkeypatch: pytest.MonkeyPatch, bad_updates: set[int]) -> list[Trainer]:
    """Make the loss of some updates NaN; the list receives the trainer."""
    seen: list[Trainer] = []
    loss = Trainer.loss

    def spoiled(self: Trainer, batch: Any) -> TokenLoss:
        seen[:] = [self]
        found = loss(self, batch)
        return found._replace(smoothed=found.smoothed * math.nan) if self.position.update + 1 in bad_updates else found

    monkeypatch.setattr(Trainer, "loss", spoiled)
    return seen


def weights_at(monkeypatch: pytest.MonkeyPatch) -> dict[int, Tensor]:
    """The weights that each update starts from."""
    found: dict[int, Tensor] = {}
    update = Trainer._one_update

    def spied(self: Trainer) -> None:
        found[self.position.update + 1] = nn.utils.parameters_to_vector(self.model.parameters()).detach().clone()
        update(self)

    monkeypatch.setattr(Trainer, "_one_update", spied)
    return found


def test_an_update_without_a_finite_loss_is_skipped(
    make_recipe: MakeRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(monkeypatch, {2})
    weights = weights_at(monkeypatch)
    outcome = train(make_recipe(train={"updates": 4, "max_bad_updates": 2}), tmp_path / "run", device="cpu")
    assert outcome.update == 4
    assert torch.equal(weights[2], weights[3])
    assert not torch.equal(weights[1], weights[2])
    assert not torch.equal(weights[3], weights[4])
    assert weights[4].isfinite().all()
    log = (tmp_path / "run" / LOG_FILE).read_text(encoding="utf-8")
    assert "update 2 (epoch 1, batch 2): the loss or its gradient is not finite; the update is skipped" in log
    reported = [entry["update"] for entry in read_metrics(tmp_path / "run") if "loss_nats" in entry]
    assert reported == [1, 3, 4]


def test_too_many_bad_updates_in_a_row_end_the_run_with_advice(
    make_recipe: MakeRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(monkeypatch, {2, 4, 5, 6})  # the third one in a row is update 6
    recipe = make_recipe(train={"updates": 20, "max_bad_updates": 3, "save_every": 1, "validate_every": 3})
    with pytest.raises(TrainingError) as caught:
        train(recipe, tmp_path / "run", device="cpu")
    assert str(caught.value).startswith("update 6 (epoch 1, batch 6): 3 updates in a row without a finite loss; ")
    assert "Lower train.lr" in str(caught.value)
    assert caught.value.exit_status == 1
    updates = list_updates(tmp_path / "run")
    assert updates == [3, 4, 5]
    for update in updates:
        assert all(tensor.isfinite().all() for tensor in saved_weights(tmp_path / "run", update).values())


def test_a_run_that_diverges_saves_what_it_learned_before(
    make_recipe: MakeRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two good updates, two skipped ones, and no checkpoint was due yet."""
    spoil(monkeypatch, {3, 4, 5})
    weights = weights_at(monkeypatch)
    recipe = make_recipe(train={"updates": 20, "max_bad_updates": 3, "save_every": 10, "validate_every": 10})
    with pytest.raises(DivergedError):
        train(recipe, tmp_path / "run", device="cpu")
    assert list_updates(tmp_path / "run") == [4]
    model = load_model(tmp_path / "run").model
    assert torch.equal(nn.utils.parameters_to_vector(model.parameters()), weights[3])


def test_a_run_that_diverges_does_so_also_where_nothing_can_be_saved(
    make_recipe: MakeRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise TrainingError("no space left on device")

    spoil(monkeypatch, {3, 4, 5})
    monkeypatch.setattr(trainer_module, "save_checkpoint", full)
    recipe = make_recipe(train={"updates": 20, "max_bad_updates": 3, "save_every": 10, "validate_every": 10})
    with pytest.raises(DivergedError, match="without a finite loss"):
        train(recipe, tmp_path / "run", device="cpu")


def test_no_checkpoint_of_a_diverging_run_holds_a_number_that_is_none(make_recipe: MakeRecipe, tmp_path: Path) -> None:
    recipe = make_recipe(
        train={"updates": 30, "lr": 1e30, "warmup_updates": 0, "clip_norm": None, "max_bad_updates": 4, "save_every": 1}
    )
    with pytest.raises(MtkitError) as caught:
        train(recipe, tmp_path / "run", device="cpu")
    assert caught.value.exit_status == 1
    for update in list_updates(tmp_path / "run"):
        assert all(tensor.isfinite().all() for tensor in saved_weights(tmp_path / "run", update).values())


def test_weights_that_are_not_finite_are_never_saved(
    tmp_path: Path, scripted: Callable[[list[float]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted([1.0])
    model = KnownCost()
    trainer = build_trainer(tmp_path, model, Rows([[6]], [[]]), train_section(updates=1))
    monkeypatch.setattr(trainer.optimizer, "step", lambda: model.shift.data.fill_(math.inf))
    with pytest.raises(TrainingError, match="update 1: weights are not finite; no checkpoint is written"):
        trainer.train(StopRequest())
    assert list_updates(tmp_path) == []
    assert read_pointer(tmp_path, "best") is None


# ---- memory -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("[enforce fail at alloc_cpu.cpp:1] DefaultCPUAllocator: can't allocate memory: 9 bytes"),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB"),
        MemoryError(),
    ],
)
def test_running_out_of_memory_names_the_update_the_shapes_and_the_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def refuse(self: Trainer, batch: Any) -> TokenLoss:
        if self.position.update == 2:
            raise error
        return loss(self, batch)

    loss = Trainer.loss
    monkeypatch.setattr(Trainer, "loss", refuse)
    trainer = build_trainer(tmp_path, KnownCost(), Rows([[6, 6]], [[EOS]]), train_section(updates=5, lr=1e-9))
    with pytest.raises(TrainingError) as caught:
        trainer.train(StopRequest())
    message = str(caught.value)
    assert message.startswith("update 3: out of memory on batches of (1, 3) → (1, 2) tokens (")
    assert (str(error) or "MemoryError") in message
    assert message.endswith("lower train.batch_tokens and raise train.accumulate by the same factor")
    assert caught.value.__cause__ is error


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (
            torch.OutOfMemoryError("CUDA out of memory. Tried\nhard"),
            TrainingError,
            "update 2, looking at the dev set: out of memory (CUDA out of memory. Tried); its sentences have up to 7 "
            "tokens; a dev set without such long ones needs less",
        ),
        (DivergedError("nan"), DivergedError, "update 2, looking at the dev set: nan"),
        (MtkitError("too long"), MtkitError, "update 2, looking at the dev set: too long"),
    ],
)
def test_what_ends_a_look_at_the_dev_set_says_when(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, kind: type[Exception], message: str
) -> None:
    def fail(*_: Any) -> DevScores:
        raise error

    monkeypatch.setattr(trainer_module, "validate", fail)
    section = train_section(updates=5, lr=1e-9, validate_every=2)
    trainer = build_trainer(tmp_path, KnownCost(), Rows([[6]], [[]]), section)
    dev = DevSet(["x"], ["y"], [np.zeros(3)], [np.zeros(7)])
    trainer.dev_task = trainer.dev_task._replace(dev=dev)
    with pytest.raises(MtkitError) as caught:
        trainer.train(StopRequest())
    assert (type(caught.value), str(caught.value)) == (kind, message)
    if isinstance(caught.value, TrainingError):
        assert list_updates(tmp_path) == [2], "what was learned is not lost with the look"


def test_a_translation_of_the_dev_set_that_does_not_fit_gives_no_advice_for_another_command(
    make_recipe: MakeRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mtkit.models.transformer import Model

    def refuse(*_: Any) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(Model, "start", refuse)
    with pytest.raises(TrainingError) as caught:
        train(make_recipe(train={"updates": 1}), tmp_path / "run", device="cpu")
    assert str(caught.value).startswith("update 1, looking at the dev set: out of memory (no room); its sentences have")
    assert "--" not in str(caught.value)


def test_an_optimizer_that_does_not_fit_is_found_before_the_first_update(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = build_trainer(tmp_path, KnownCost(), Rows([[6]], [[]]), train_section(updates=5))

    def refuse() -> None:
        raise MemoryError

    monkeypatch.setattr(trainer.optimizer, "step", refuse)
    with pytest.raises(TrainingError, match="out of memory on the weights, .* choose a smaller model"):
        trainer.rehearse_step()


def test_other_errors_are_not_taken_for_a_lack_of_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Trainer, batch: Any) -> TokenLoss:
        raise RuntimeError("shapes do not fit")

    monkeypatch.setattr(Trainer, "loss", fail)
    trainer = build_trainer(tmp_path, KnownCost(), Rows([[6]], [[]]), train_section(updates=5))
    with pytest.raises(RuntimeError, match="^shapes do not fit$"):
        trainer.train(StopRequest())


# ---- checkpoints --------------------------------------------------------------------------------------------------


def saved_weights(run: Path, update: int) -> dict[str, Tensor]:
    folder = checkpoints_folder(run) / f"update-{update}"
    return read_tensors(folder, "model.safetensors", read_state(folder))


def test_the_newest_and_the_best_are_kept(tmp_path: Path, scripted: Callable[[list[float]], None]) -> None:
    scripted([1.0, 5.0, 2.0, 3.0, 4.0, 0.5])
    section = train_section(updates=6, validate_every=1, keep=2, lr=1e-9)
    build_trainer(tmp_path, KnownCost(), Rows([[6]], [[]]), section).train(StopRequest())
    assert list_updates(tmp_path) == [2, 5, 6]
    assert read_pointer(tmp_path, "best") == "update-2"
    assert read_pointer(tmp_path, "last") == "update-6"
    assert sorted(path.name for path in checkpoints_folder(tmp_path).iterdir()) == ["update-2", "update-5", "update-6"]


def test_checkpoints_come_at_their_own_pace_and_at_the_end(
    tmp_path: Path, scripted: Callable[[list[float]], None]
) -> None:
    scripted([1.0, 2.0, 3.0])
    section = train_section(updates=11, validate_every=4, save_every=3, keep=20, lr=1e-9)
    build_trainer(tmp_path, KnownCost(), Rows([[6]], [[]]), section).train(StopRequest())
    assert list_updates(tmp_path) == [3, 4, 6, 8, 9, 11]


@pytest.mark.usefixtures("sgd")
@pytest.mark.parametrize(("average_bleu", "best"), [(9.0, "average-3-5"), (7.0, "update-5"), (1.0, "update-5")])
def test_the_last_checkpoints_are_averaged(
    tmp_path: Path, scripted: Callable[[list[float]], None], average_bleu: float, best: str
) -> None:
    scripted([3.0, 4.0, 5.0, 6.0, 7.0, average_bleu])
    section = train_section(updates=5, validate_every=1, keep=4, average_last=3)
    outcome = build_trainer(tmp_path, KnownCost(), Rows([[6]], [[]]), section).train(StopRequest())
    shifts = [saved_weights(tmp_path, update)["shift"].item() for update in (3, 4, 5)]
    assert len(set(shifts)) == 3
    folder = checkpoints_folder(tmp_path) / "average-3-5"
    state = read_state(folder)
    averaged = read_tensors(folder, "model.safetensors", state)
    assert averaged["shift"].item() == pytest.approx(sum(shifts) / 3, rel=1e-6)
    assert averaged["shift"].dtype == torch.float32
    assert state["average_of"] == [3, 4, 5]
    assert read_pointer(tmp_path, "best") == best == outcome.best_name
    assert average(tmp_path, [3, 4, 5])["shift"].item() == averaged["shift"].item()


def test_the_averaged_model_of_a_real_run_loads(make_recipe: MakeRecipe, tmp_path: Path) -> None:
    recipe = make_recipe(train={"updates": 4, "save_every": 1, "keep": 2, "average_last": 2})
    train(recipe, tmp_path / "run", device="cpu")
    found = load_model(checkpoints_folder(tmp_path / "run") / "average-3-4")
    two = [saved_weights(tmp_path / "run", update) for update in (3, 4)]
    for name, parameter in found.model.named_parameters():
        assert torch.allclose(parameter, (two[0][name] + two[1][name]) / 2, rtol=1e-6, atol=1e-7)


@pytest.mark.usefixtures("sgd")
def test_a_run_that_goes_on_leaves_no_average_of_before(
    tmp_path: Path, scripted: Callable[[list[float]], None]
) -> None:
    """The first is the best of its run, and of the longer one no longer; one that stays the best stays."""
    scripted([3.0, 9.0, 4.0, 10.0, 5.0, 6.0])
    keys = {"validate_every": 10, "save_every": 1, "keep": 4, "average_last": 2}
    names = []
    for updates in (3, 5, 7):
        trainer = build_trainer(tmp_path, KnownCost(), Rows([[6]], [[]]), train_section(updates=updates, **keys))
        if updates > 3:
            folder = checkpoints_folder(tmp_path) / f"update-{updates - 2}"
            trainer.restore(load_checkpoint(folder), folder)
        trainer.train(StopRequest())
        names.append(sorted(path.name for path in checkpoints_folder(tmp_path).glob("average-*")))
    assert names == [["average-2-3"], ["average-4-5"], ["average-4-5", "average-6-7"]]


def test_a_finished_run_started_again_does_nothing_twice(
    tmp_path: Path, scripted: Callable[[list[float]], None]
) -> None:
    scripted([3.0, 9.0])  # a third validation would find no score
    section = train_section(updates=3, validate_every=10, save_every=1, keep=4, average_last=2)
    trainer = build_trainer(tmp_path, KnownCost(), Rows([[6]], [[]]), section)
    first = trainer.train(StopRequest())
    assert first.best_name == "average-2-3"
    again = build_trainer(tmp_path, KnownCost(), Rows([[6]], [[]]), section)
    folder = checkpoints_folder(tmp_path) / "update-3"
    again.restore(load_checkpoint(folder), folder)
    assert again.train(StopRequest()) == first
