"""How much a source token moves a target token: by gradients of log-probabilities, and by taking the token away."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mtkit.data.batch import Batch
from mtkit.models import TranslationModel, in_eval_mode
from mtkit.text.tokenizer import PAD_ID


def source_gradients(model: TranslationModel, batch: Batch, position: int) -> Tensor:
    """The norm of d log p(y_t) / d E x_j for target position t (from 0) and each source token j.

    The target tokens before t are those of the batch; E x_j is what the backend's `src_embedding` gives for token j. In
    eval mode; columns follow reading order, whatever the model reverses.

    Returns: [batch, src_len], 0 on padding.
    """
    captured: list[tuple[Tensor, Tensor]] = []  # the ids and their embeddings, of each call
    embedding = model.src_embedding
    assert isinstance(embedding, nn.Module)
    handle = embedding.register_forward_hook(lambda _module, args, output: captured.append((args[0], output)))
    try:
        with in_eval_mode(model):
            logits = model(batch.src, batch.src_pad_mask, batch.trg_in[:, : position + 1])[:, position]
    finally:
        handle.remove()
    ids, embedded = captured[0]  # the source is read first, also where both sides share the embedding
    chosen = logits.float().log_softmax(-1).gather(1, batch.trg_out[:, position : position + 1])
    (gradient,) = torch.autograd.grad(chosen.sum(), embedded)
    norms = gradient.float().norm(dim=-1)
    # Recurrent backends read time first.
    is_batch_first = ids.shape == batch.src.shape and torch.equal(ids, batch.src)
    return (norms if is_batch_first else norms.t()).masked_fill(batch.src_pad_mask, 0.0)


@torch.no_grad()
def left_out(model: TranslationModel, batch: Batch, replacement: int) -> Tensor:
    """How much log p(y_t) changes, up or down, when source token j is replaced: |difference|, in eval mode.

    Args:
        replacement: the token that stands for nothing, such as <unk>.

    Returns: [batch, trg_len, src_len]; padding of either side has 0.
    """
    with in_eval_mode(model):
        whole = _log_probs(model, batch, batch.src)
        changes = []
        for position in range(batch.src.size(1)):
            src = batch.src.clone()
            src[:, position] = replacement
            changes.append((_log_probs(model, batch, src) - whole).abs())
    found = torch.stack(changes, dim=-1).masked_fill(batch.src_pad_mask[:, None], 0.0)
    return found.masked_fill((batch.trg_out == PAD_ID)[:, :, None], 0.0)


def _log_probs(model: TranslationModel, batch: Batch, src: Tensor) -> Tensor:
    """Of each target token, [batch, trg_len]; the padding stays where it was."""
    logits = model(src, batch.src_pad_mask, batch.trg_in).float()
    return logits.log_softmax(-1).gather(2, batch.trg_out[:, :, None])[:, :, 0]
