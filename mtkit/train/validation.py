"""Looking at the dev set: loss, BLEU on detokenised text, early stopping."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from mtkit.data.batch import make_batch
from mtkit.data.batching import EpochBatches
from mtkit.evaluate.bleu import corpus_scores
from mtkit.models import TranslationModel, in_eval_mode
from mtkit.search.translator import Translator
from mtkit.text.tokenizer import PAD_ID, Tokenizers
from mtkit.train.loss import output_loss


class DevSet(NamedTuple):
    """The dev bitext as text and as ids."""

    sources: list[str]
    references: list[str]
    src_rows: list[np.ndarray]
    trg_rows: list[np.ndarray]


class DevScores(NamedTuple):
    """One look at the dev set."""

    loss_nats: float  # per target token, EOS included, no label smoothing
    bleu: float
    signature: str
    translations: list[str]


def make_dev_set(pairs: Sequence[tuple[str, str]], tokenizers: Tokenizers) -> DevSet:
    """Tokenise a dev bitext; nothing is filtered, so that its BLEU is that of the whole text."""
    sources, references = [src for src, _ in pairs], [trg for _, trg in pairs]
    src_rows = [np.asarray(ids, dtype=np.int32) for ids in tokenizers.src.encode(sources)]
    trg_rows = [np.asarray(ids, dtype=np.int32) for ids in tokenizers.trg.encode(references)]
    return DevSet(sources, references, src_rows, trg_rows)


def dev_loss(
    model: TranslationModel,
    dev: DevSet,
    batch_tokens: int,
    device: torch.device,
    before_batch: Callable[[], None] | None = None,
) -> float:
    """Nats per target token, EOS included; every sentence is scored, however long."""
    lengths = [np.array([len(row) + 1 for row in rows], dtype=np.int32) for rows in (dev.src_rows, dev.trg_rows)]
    nll, n_tokens = 0.0, 0
    with torch.inference_mode():
        for rows in EpochBatches(lengths[0], lengths[1], batch_tokens, seed=0).epoch(0):
            if before_batch is not None:
                before_batch()
            batch = make_batch([dev.src_rows[row] for row in rows], [dev.trg_rows[row] for row in rows]).to(device)
            features = model.features(batch.src, batch.src_pad_mask, batch.trg_in)
            real = batch.trg_out != PAD_ID
            nll += output_loss(model.output, features[real], batch.trg_out[real], 0.0).nll.item()
            n_tokens += batch.n_trg_tokens
    return nll / n_tokens


def validate(
    model: TranslationModel,
    translator: Translator,
    dev: DevSet,
    batch_tokens: int,
    trg_lang: str,
    device: torch.device,
    before_batch: Callable[[], None] | None = None,
) -> DevScores:
    """Loss and BLEU of the dev set in fp32; the model is in the mode of before again afterwards.

    What `before_batch` raises, before any of the batches, ends the work.
    """
    with in_eval_mode(model):
        loss_nats = dev_loss(model, dev, batch_tokens, device, before_batch)
        translated = translator.translate(dev.sources, before_batch=before_batch)
        translations = [translation.text for translation in translated]
    score = corpus_scores(translations, [dev.references], trg_lang=trg_lang)[0]
    return DevScores(loss_nats, score.score, score.signature, translations)


class EarlyStopping:
    """The best look so far, and how many have come since. A tie is no improvement; NaN never improves.

    Patience counts the looks that `see` takes in, and they alone move the `bar` that the next of them must pass.
    """

    def __init__(self, metric: str, patience: int | None) -> None:
        self.higher_is_better = metric == "bleu"
        self.patience = patience
        self.best: float | None = None
        self.best_name: str | None = None
        self.bar: float | None = None
        self.n_stale = 0

    def see(self, value: float, name: str) -> bool:
        """Take one validation in; True when it is the best so far."""
        if self._is_better(value, self.bar):
            self.bar, self.n_stale = value, 0
        else:
            self.n_stale += 1
        return self.consider(value, name)

    def consider(self, value: float, name: str) -> bool:
        """The same for a model that is no step of the run, such as an average: patience does not see it."""
        if not self._is_better(value, self.best):
            return False
        self.best, self.best_name = value, name
        return True

    def _is_better(self, value: float, than: float | None) -> bool:
        if math.isnan(value):
            return False
        return than is None or (value > than if self.higher_is_better else value < than)

    @property
    def is_over(self) -> bool:
        return self.patience is not None and self.n_stale >= self.patience

    def to_state(self) -> dict[str, Any]:
        return {"best": self.best, "best_name": self.best_name, "bar": self.bar, "n_stale": self.n_stale}

    def restore(self, state: dict[str, Any]) -> None:
        self.best, self.best_name, self.n_stale = state["best"], state["best_name"], state["n_stale"]
        self.bar = state.get("bar", self.best)  # a state of before had one for both


def spread(size: int, count: int) -> list[int]:
    """`count` positions spread evenly over `size`, fewer where there are not so many: which sentences are shown."""
    count = min(size, count)
    return [size * number // count for number in range(count)]
