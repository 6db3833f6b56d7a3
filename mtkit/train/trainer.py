"""The training loop: batch → loss → backward → clip → update → log → validate → save."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

import mtkit
from mtkit.checkpoint import (
    WEIGHTS_FILE,
    Checkpoint,
    average_name,
    checkpoints_folder,
    copy_weights,
    list_updates,
    read_state,
    read_tensors,
    remove_checkpoint,
    remove_updates,
    save_average,
    save_checkpoint,
    unique_tensors,
    write_pointer,
)
from mtkit.data.batch import Batch, make_batch
from mtkit.data.batching import EpochBatches
from mtkit.data.store import TokenStore
from mtkit.errors import DivergedError, ModelError, MtkitError, TrainingError, first_line, is_out_of_memory
from mtkit.models import TranslationModel
from mtkit.recipe import TrainSection
from mtkit.search.translator import Translator
from mtkit.text.tokenizer import PAD_ID
from mtkit.train.log import TrainingLog, minutes_text
from mtkit.train.loss import TokenLoss, output_loss, perplexity
from mtkit.train.memory import FreedPages
from mtkit.train.optimizer import build_optimizer, learning_rate, set_learning_rate
from mtkit.train.pace import Pace
from mtkit.train.precision import Precision, autocast
from mtkit.train.signals import Stopped, StopRequest
from mtkit.train.validation import DevScores, DevSet, EarlyStopping, spread, validate


@dataclass
class Window:
    """Sums since the last log line."""

    smoothed: float = 0.0
    nll: float = 0.0
    n_trg_tokens: int = 0
    n_src_tokens: int = 0
    n_updates: int = 0
    seconds: float = 0.0


@dataclass
class Position:
    """Where the run stands; all of it is saved, so that a resumed run goes on as if it had never stopped."""

    update: int = 0
    epoch: int = 0
    next_batch: int = 0  # within the epoch
    seconds: float = 0.0  # spent in the loop, over all its parts
    n_bad: int = 0  # updates in a row whose loss was not finite
    validated_update: int = 0  # the last one that was looked at
    lowest_dev_loss: float | None = None  # nats, for the schedule plateau
    n_decays: int = 0  # of the learning rate, by the schedule plateau
    averaged: str = ""  # the last average that was looked at
    window: Window = field(default_factory=Window)


class DevTask(NamedTuple):
    """What a validation needs."""

    dev: DevSet
    translator: Translator
    trg_lang: str


class Outcome(NamedTuple):
    """How a training run ended."""

    update: int
    reason: str
    best: float | None
    best_name: str | None
    interrupted: bool
    out_of_time: bool = False  # train.max_minutes ended it
    exit_status: int = 0


class Over(NamedTuple):
    """The stopping rule that has been reached."""

    reason: str
    out_of_time: bool = False


class Trainer:
    """Trains one model in one run folder; knows the model through `features` and `output` alone."""

    def __init__(
        self,
        run: Path,
        model: TranslationModel,
        section: TrainSection,
        store: TokenStore,
        dev_task: DevTask,
        log: TrainingLog,
        *,
        device: torch.device,
        precision: Precision,
        d_model: int | None,
        saved_with_model: dict[str, Any],
    ) -> None:
        """`saved_with_model` is written into every checkpoint's state, for those who go on from it to check."""
        self.run = run
        self.model = model.to(device).train()
        self.section = section
        self.store = store
        self.dev_task = dev_task
        self.log = log
        self.device = device
        self.precision = precision
        self.d_model = d_model
        self.saved_with_model = saved_with_model
        self.optimizer = build_optimizer(self.model, section)
        self.scaler = torch.amp.GradScaler(device.type, enabled=precision == "fp16")
        self.batches = EpochBatches(
            store.src_lengths, store.trg_lengths, section.batch_tokens, section.seed, section.batch_sentences
        )
        self.epoch_batches = self.batches.epoch(0)
        self.position = Position()
        self.stopping = EarlyStopping(section.best_metric, section.patience)
        self.pages = FreedPages(self.device)
        self.started = time.monotonic()
        self.saved_update = 0

    # ---- the loop -------------------------------------------------------------------------------------------------

    def train(self, stop: StopRequest) -> Outcome:
        """Run to the first stopping rule, or to a checkpoint when `stop` asks for it.

        Raises: DivergedError when the loss stays not finite (the weights before it are saved), TrainingError when
        memory runs out or a checkpoint cannot be saved.
        """
        self.started = time.monotonic() - self.position.seconds
        self.saved_update = self.position.update
        section, position = self.section, self.position
        # The stretch with a look at the dev set takes longer than the others: always two looks, not now none, now one.
        n_reports = max(10, math.ceil(2 * section.validate_every / section.report_every))
        self.pace = Pace(n_reports, self._seconds(), self._fraction_done())
        while True:
            # Also first thing in a run that was stopped before it had looked.
            if position.update % section.validate_every == 0 and position.validated_update != position.update:
                self._validate(stop)
            over = self._over()
            if over or stop.requested:
                break
            try:
                self._one_update()
            except DivergedError:
                with suppress(TrainingError):  # what cannot be saved is no reason to call it something else
                    self._save()
                raise
            if position.update % section.report_every == 0:
                self._report()
            if position.update % section.save_every == 0 and position.update % section.validate_every != 0:
                self._save()
        if over is None or not self._finish(stop):
            self._save()  # the sums since the last log line go with it: the line comes when its updates are complete
            return Outcome(position.update, stop.reason, self.stopping.best, self.stopping.best_name, interrupted=True)
        return Outcome(
            position.update,
            over.reason,
            self.stopping.best,
            self.stopping.best_name,
            interrupted=False,
            out_of_time=over.out_of_time,
        )

    def _finish(self, stop: StopRequest) -> bool:
        """What comes after the last update; False when a stop comes before its end."""
        if stop.requested:
            return False
        if self.position.window.n_updates:
            self._report()
            self._save(anew=True)  # or the line would come again in a run that goes on from here
        if self.position.validated_update != self.position.update and not self._validate(stop):
            return False
        return self._finish_with_average(stop)

    def _over(self) -> Over | None:
        """The stopping rule that has been reached, if one has."""
        section, position = self.section, self.position
        if section.updates is not None and position.update >= section.updates:
            return Over(f"{section.updates:,} updates")
        if section.epochs is not None and self._epochs_done() >= section.epochs:
            return Over(f"{section.epochs:g} epochs")
        if section.max_minutes is not None and self._seconds() >= 60 * section.max_minutes:
            return Over(f"{section.max_minutes:g} minutes", out_of_time=True)
        after_warmup = max(position.update + 1, section.warmup_updates)  # which is no lowered rate
        if section.schedule == "plateau" and self._learning_rate(after_warmup) < section.min_lr:
            return Over(f"a learning rate below {section.min_lr:g}")
        if self.stopping.is_over:
            return Over(f"{section.patience} validations without improvement")
        return None

    def _seconds(self) -> float:
        return time.monotonic() - self.started

    def _epochs_done(self) -> float:
        return self.position.epoch + self.position.next_batch / max(1, len(self.epoch_batches))

    def _fraction_done(self) -> float:
        section = self.section
        parts = [0.0]
        if section.updates is not None:
            parts.append(self.position.update / section.updates)
        if section.epochs is not None:
            parts.append(self._epochs_done() / section.epochs)
        if section.max_minutes is not None:
            parts.append(self._seconds() / (60 * section.max_minutes))
        return min(1.0, max(parts))

    def _next_batches(self) -> Iterator[np.ndarray]:
        """Row numbers of the batches of one update; an update never reaches over the end of an epoch."""
        first = self.position.next_batch
        yield from self.epoch_batches[first : first + self.section.accumulate]

    def _advance(self) -> None:
        self.position.update += 1
        self.position.next_batch += self.section.accumulate
        if self.position.next_batch >= len(self.epoch_batches):
            self.position.epoch += 1
            self.position.next_batch = 0
            self.epoch_batches = self.batches.epoch(self.position.epoch)

    def _one_update(self) -> None:
        begun = time.monotonic()
        batches = [self._load(rows) for rows in self._next_batches()]
        n_trg_tokens = sum(batch.n_trg_tokens for batch in batches)
        update = self.position.update + 1
        with self._memory_explained(update, batches):
            n_sentences = sum(len(batch.src) for batch in batches)
            divisor = n_trg_tokens if self.section.normalize == "tokens" else n_sentences
            smoothed, nll = self._accumulate_gradients(batches, divisor)
            set_learning_rate(self.optimizer, self._learning_rate(update))
            has_stepped = self._step(smoothed)
        if has_stepped:
            self.position.n_bad = 0
            window = self.position.window
            window.smoothed += smoothed
            window.nll += nll
            window.n_trg_tokens += n_trg_tokens
            window.n_src_tokens += sum(int((~batch.src_pad_mask).sum()) for batch in batches)
            window.n_updates += 1
            window.seconds += time.monotonic() - begun
        else:
            self._report_bad(update)
        self.optimizer.zero_grad(set_to_none=True)
        self.pages.give_back_excess()
        self._advance()

    def _learning_rate(self, update: int) -> float:
        return learning_rate(
            update,
            self.section,
            self.d_model,
            epochs=self._epochs_done(),
            minutes=self._seconds() / 60,
            n_decays=self.position.n_decays,
        )

    def _load(self, rows: np.ndarray) -> Batch:
        return make_batch(*self.store.rows(rows)).to(self.device)

    def _accumulate_gradients(self, batches: list[Batch], divisor: int) -> tuple[float, float]:
        """Backward over the batches of one update, the gradient divided by its tokens or sentences, whatever batch they
        stand in. Returns the sums of both losses.
        """
        smoothed, nll = 0.0, 0.0
        for batch in batches:
            loss = self.loss(batch)
            self.scaler.scale(loss.smoothed / divisor).backward()
            smoothed += loss.smoothed.item()
            nll += loss.nll.item()
        return smoothed, nll

    def gradients_of(self, rows: np.ndarray) -> None:
        """One forward and backward pass without an update, to see what it costs.

        Raises: TrainingError when it does not fit in memory.
        """
        batch = self._load(rows)
        with self._memory_explained(1, [batch]):
            self._accumulate_gradients([batch], batch.n_trg_tokens)
        self.optimizer.zero_grad(set_to_none=True)

    def rehearse_step(self) -> float:
        """One step of the optimizer that moves nothing, to see what it costs; its seconds, 0.0 in a run that goes on.

        What the optimizer keeps beside the weights is in memory from here on.
        """
        if self.position.update:
            return 0.0
        set_learning_rate(self.optimizer, 0.0)
        with self._memory_explained(1, []):
            for parameter in self.model.parameters():
                parameter.grad = torch.zeros_like(parameter)
            self.optimizer.step()  # makes room for what it keeps; the next one is as all others
            self.wait_for_device()
            begun = time.monotonic()
            self.optimizer.step()
            self.wait_for_device()
        seconds = time.monotonic() - begun
        self.optimizer.zero_grad(set_to_none=True)
        return seconds

    def wait_for_device(self) -> None:
        """Until a GPU has done what it was told, so that a clock can be read."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def forget_rehearsal(self) -> None:
        """Begin with an optimizer that has seen nothing."""
        if not self.position.update:
            self.optimizer.state.clear()

    def loss(self, batch: Batch) -> TokenLoss:
        """The loss of one batch, summed over its target tokens."""
        with autocast(self.device, self.precision):
            features = self.model.features(batch.src, batch.src_pad_mask, batch.trg_in)
            real = batch.trg_out != PAD_ID
            return output_loss(self.model.output, features[real], batch.trg_out[real], self.section.label_smoothing)

    def _step(self, smoothed: float) -> bool:
        """Clip and update; False when loss or gradient is not finite, and nothing has changed then."""
        self.scaler.unscale_(self.optimizer)
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.section.clip_norm or math.inf)
        finite = math.isfinite(smoothed) and math.isfinite(norm.item())
        if finite:
            self.scaler.step(self.optimizer)
        self.scaler.update()  # in fp16 a gradient that is not finite also lowers the scale, so that the next one fits
        return finite

    def _report_bad(self, update: int) -> None:
        self.position.n_bad += 1
        where = f"update {update} (epoch {self.position.epoch + 1}, batch {self.position.next_batch + 1})"
        self.log.say(f"{where}: the loss or its gradient is not finite; the update is skipped")
        if self.position.n_bad >= self.section.max_bad_updates:
            raise DivergedError(
                f"{where}: {self.position.n_bad} updates in a row without a finite loss; the checkpoints are "
                "intact. Lower train.lr, raise train.warmup_updates or set train.clip_norm; train in another --output"
            )

    @contextmanager
    def _memory_explained(self, update: int, batches: list[Batch]) -> Iterator[None]:
        """Turn an out-of-memory error into one that says what was being worked on; any other passes as it is."""
        try:
            yield
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            if not batches:
                raise TrainingError(
                    f"update {update}: out of memory on the weights, their gradients and what the optimizer keeps "
                    f"({first_line(error)}); choose a smaller model"
                ) from error
            shapes = ", ".join(f"{tuple(batch.src.shape)} → {tuple(batch.trg_in.shape)}" for batch in batches)
            raise TrainingError(
                f"update {update}: out of memory on batches of {shapes} tokens ({first_line(error)}); "
                "lower train.batch_tokens and raise train.accumulate by the same factor"
            ) from error

    # ---- what is seen and kept ------------------------------------------------------------------------------------

    def _report(self) -> None:
        window, position = self.position.window, self.position
        position.window = Window()
        if not window.n_trg_tokens:
            return
        smoothed, nll = window.smoothed / window.n_trg_tokens, window.nll / window.n_trg_tokens
        rate: float = self.optimizer.param_groups[0]["lr"]
        tokens_per_second = window.n_trg_tokens / max(window.seconds, 1e-9)
        fraction = self._fraction_done()
        minutes_left = self.pace.minutes_left(self._seconds(), fraction)
        self.log.record(
            {
                "update": position.update,
                "epoch": round(self._epochs_done(), 4),
                "loss_nats": nll,
                "smoothed_loss_nats": smoothed,
                "ppl": perplexity(nll),
                "lr": rate,
                "trg_tokens": window.n_trg_tokens,
                "src_tokens": window.n_src_tokens,
                "trg_tokens_per_second": round(tokens_per_second, 1),
                "minutes": round(self._seconds() / 60, 3),
            }
        )
        left = f", {minutes_text(minutes_left)} left" if minutes_left is not None else ""
        self.log.say(
            f"update {position.update:,}  epoch {self._epochs_done():.2f}  loss {nll:.3f} nats  "
            f"ppl {perplexity(nll):.2f}  lr {rate:.2e}  {tokens_per_second:,.0f} trg tokens/s{left}"
        )
        self.log.progress(fraction, minutes_left, nll)

    def _validate(self, stop: StopRequest) -> bool:
        """Look at the dev set, keep the checkpoint, let `best` name it when it is the best so far.

        False when a stop comes first: nothing has changed then.
        """
        try:
            scores = self._dev_scores(stop)
        except TrainingError:
            with suppress(TrainingError):
                self._save()  # what was learned since the last checkpoint is not lost with the look
            raise
        if scores is None:
            return False
        name, value = f"update-{self.position.update}", self._deciding(scores)
        if self.position.update % self.section.validate_every == 0:
            improved = self.stopping.see(value, name)
            self._decay_on_plateau(scores.loss_nats)
        else:
            # At the end of a run, which may go on with more updates: its curve is then that of a longer run.
            improved = self.stopping.consider(value, name)
        self.position.validated_update = self.position.update
        self._say_dev_scores(name, scores, improved)
        self._save(anew=True)
        return True

    def _is_regular(self, update: int) -> bool:
        """Whether every run of this recipe has a checkpoint there, stopped in between or not."""
        return update % self.section.save_every == 0 or update % self.section.validate_every == 0

    def _comparable_updates(self) -> list[int]:
        """The checkpoints that a run which was never stopped has as well, this one the last of them."""
        updates = list_updates(self.run)
        return [update for update in updates if self._is_regular(update) or update == self.position.update]

    def _decay_on_plateau(self, loss_nats: float) -> None:
        lowest = self.position.lowest_dev_loss
        if loss_nats < (math.inf if lowest is None else lowest):
            self.position.lowest_dev_loss = loss_nats
        else:
            self.position.n_decays += 1

    def _dev_scores(self, stop: StopRequest) -> DevScores | None:
        """A look at the dev set; None when a stop comes before its end.

        Raises: DivergedError, TrainingError when memory runs out.
        """
        task, batch_tokens = self.dev_task, self.section.batch_tokens
        where = f"update {self.position.update}, looking at the dev set"
        try:
            return validate(self.model, task.translator, task.dev, batch_tokens, task.trg_lang, self.device, stop.check)
        except Stopped:
            return None
        except (MtkitError, RuntimeError, MemoryError) as error:
            cause = error.__cause__ if isinstance(error, MtkitError) and error.__cause__ else error
            if is_out_of_memory(cause):
                longest = max(map(len, (*task.dev.src_rows, *task.dev.trg_rows)), default=0)
                raise TrainingError(
                    f"{where}: out of memory ({first_line(cause)}); its sentences have up to {longest:,} tokens; a dev "
                    "set without such long ones needs less"
                ) from error
            if isinstance(error, MtkitError):
                raise type(error)(f"{where}: {error}") from error
            raise

    def _deciding(self, scores: DevScores) -> float:
        return scores.bleu if self.section.best_metric == "bleu" else scores.loss_nats

    def _say_dev_scores(self, name: str, scores: DevScores, improved: bool) -> None:
        self.log.record(
            {
                "update": self.position.update,
                "checkpoint": name,
                "dev_loss_nats": scores.loss_nats,
                "dev_ppl": perplexity(scores.loss_nats),
                "dev_bleu": scores.bleu,
                "dev_signature": scores.signature,
                "minutes": round(self._seconds() / 60, 3),
            }
        )
        self.log.say(
            f"{name}  dev loss {scores.loss_nats:.3f} nats  ppl {perplexity(scores.loss_nats):.2f}  "
            f"BLEU {scores.bleu:.2f} (greedy, {scores.signature})" + ("  best so far" if improved else "")
        )
        dev = self.dev_task.dev
        for row in spread(len(dev.sources), self.section.sample_translations):
            self.log.say(f"    source     {dev.sources[row]}")
            self.log.say(f"    reference  {dev.references[row]}")
            self.log.say(f"    mtkit      {scores.translations[row]}")

    def _save(self, *, anew: bool = False) -> None:
        """Write the checkpoint of this update, unless it is there; `anew`: its state has changed since."""
        if self.saved_update == self.position.update and not anew:
            return
        self.position.seconds = self._seconds()
        weights = unique_tensors(self.model)
        if not all(bool(torch.isfinite(tensor).all()) for tensor in weights.values()):
            raise DivergedError(f"update {self.position.update}: weights are not finite; no checkpoint is written")
        name = f"update-{self.position.update}"
        save_checkpoint(self.run, name, weights, self._trainer_tensors(), self._state())
        self.saved_update = self.position.update
        self._write_pointers()
        self._remove_old()

    def _write_pointers(self) -> None:
        write_pointer(self.run, "last", f"update-{self.position.update}")
        if self.stopping.best_name and (checkpoints_folder(self.run) / self.stopping.best_name).is_dir():
            write_pointer(self.run, "best", self.stopping.best_name)

    def _remove_old(self) -> None:
        """Keep the newest regular checkpoints, this one and the best; one that only a stop has left goes."""
        newest = [update for update in list_updates(self.run) if self._is_regular(update)][-self.section.keep :]
        names = {f"update-{update}" for update in (*newest, self.position.update)}
        remove_updates(self.run, except_for={*names, self.stopping.best_name or ""})

    def _trainer_tensors(self) -> dict[str, Tensor]:
        tensors = {}
        parameters = [name for name, _ in self.model.named_parameters()]
        for number, state in self.optimizer.state_dict()["state"].items():
            for key, value in state.items():
                tensors[f"optimizer.{key}.{parameters[number]}"] = value
        tensors["random.cpu"] = torch.get_rng_state()
        if self.device.type == "cuda":
            tensors["random.cuda"] = torch.cuda.get_rng_state(self.device)
        return tensors

    def _state(self) -> dict[str, Any]:
        return {
            "update": self.position.update,
            "position": asdict(self.position),
            "stopping": self.stopping.to_state(),
            "scaler": self.scaler.state_dict(),
            "made_with": self._made_with(),
            **self.saved_with_model,
        }

    def _made_with(self) -> dict[str, str]:
        """What else than recipe and text decides on the last digits of a run."""
        return {
            "arithmetic": f"{self.precision} on {self.device.type}",
            "mtkit": mtkit.__version__,
            "torch": torch.__version__,
        }

    def restore(self, checkpoint: Checkpoint, source: Path) -> None:
        """Stand where the checkpoint was made.

        Raises: ModelError when it is not one of this model and trainer.
        """
        copy_weights(self.model, checkpoint.weights, source)
        try:
            self._restore_optimizer(checkpoint.trainer)
            saved = dict(checkpoint.state["position"])
            self.position = Position(**{**saved, "window": Window(**saved["window"])})
            self.stopping.restore(checkpoint.state["stopping"])
            self.scaler.load_state_dict(checkpoint.state["scaler"])
            torch.set_rng_state(checkpoint.trainer["random.cpu"])
            if self.device.type == "cuda" and "random.cuda" in checkpoint.trainer:
                torch.cuda.set_rng_state(checkpoint.trainer["random.cuda"], self.device)
        except (KeyError, TypeError) as error:
            raise ModelError(f"{source}: not a checkpoint of this trainer ({error!r})") from error
        before, now = checkpoint.state.get("made_with", {}), self._made_with()
        if (arithmetic := before.get("arithmetic", now["arithmetic"])) != now["arithmetic"]:
            self.log.say(f"{source}: was trained in {arithmetic} so far, goes on in {now['arithmetic']}")
        self.epoch_batches = self.batches.epoch(self.position.epoch)
        self._write_pointers()  # a kill may have come before them

    def _restore_optimizer(self, tensors: dict[str, Tensor]) -> None:
        numbers = {name: number for number, (name, _) in enumerate(self.model.named_parameters())}
        state: dict[int, dict[str, Tensor]] = {}
        for full_name, tensor in tensors.items():
            if full_name.startswith("optimizer."):
                _, key, name = full_name.split(".", 2)
                state.setdefault(numbers[name], {})[key] = tensor
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": state})

    def _finish_with_average(self, stop: StopRequest) -> bool:
        """Average the last checkpoints where the recipe asks for it, and let `best` name the average if it is.

        False when a stop comes before its end.
        """
        updates = self._comparable_updates()[-self.section.average_last :] if self.section.average_last else []
        name = average_name(updates) if len(updates) > 1 else ""
        if not name or self.position.averaged == name:  # a finished run, started again
            return True
        last = {key: tensor.clone() for key, tensor in unique_tensors(self.model).items()}
        try:
            folder = save_average(self.run, updates, name)
        except ModelError as error:
            self.log.say(f"{error}; the last {len(updates)} checkpoints are not averaged")
            return True
        copy_weights(self.model, read_tensors(folder, WEIGHTS_FILE, read_state(folder)), folder)
        try:
            scores = self._dev_scores(stop)
        finally:
            copy_weights(self.model, last, self.run)
        if scores is None:
            return False
        before = self.position.averaged
        improved = self.stopping.consider(self._deciding(scores), name)
        self.position.averaged = name
        self._say_dev_scores(name, scores, improved)
        self._save(anew=True)
        if before not in ("", self.stopping.best_name):  # of a run that has gone on
            remove_checkpoint(self.run, before)
        return True
