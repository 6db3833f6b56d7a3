"""How much a source token moves a target token: gradients of log-probabilities with respect to embeddings."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mtkit.data.batch import Batch
from mtkit.models import TranslationModel


def source_gradients(model: TranslationModel, batch: Batch, position: int) -> Tensor:
    """The norm of d log p(y_t) / d E x_j for target position t (from 0) and each source token j.

    The target tokens before t are those of the batch; E x_j is what the backend's `src_embedding` gives for token j. In
    eval mode; columns follow reading order, whatever the model reverses.

    Returns: [batch, src_len], 0 on padding.
    """
    was_training = model.training
    model.eval()
    captured: list[tuple[Tensor, Tensor]] = []  # the ids and their embeddings, of each call
    embedding = model.src_embedding
    assert isinstance(embedding, nn.Module)
    handle = embedding.register_forward_hook(lambda _module, args, output: captured.append((args[0], output)))
    try:
        logits = model(batch.src, batch.src_pad_mask, batch.trg_in[:, : position + 1])[:, position]
    finally:
        handle.remove()
        model.train(was_training)
    ids, embedded = captured[0]  # the source is read first, also where both sides share the embedding
    chosen = logits.float().log_softmax(-1).gather(1, batch.trg_out[:, position : position + 1])
    (gradient,) = torch.autograd.grad(chosen.sum(), embedded)
    norms = gradient.float().norm(dim=-1)
    # Recurrent backends read time first.
    is_batch_first = ids.shape == batch.src.shape and torch.equal(ids, batch.src)
    return (norms if is_batch_first else norms.t()).masked_fill(batch.src_pad_mask, 0.0)
