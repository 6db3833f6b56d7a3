"""Word links from the attention that a model pays while it reads translations that are given."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from mtkit.analyze.attention_maps import TOP, AttentionMap, attention_maps
from mtkit.checkpoint import LoadedModel
from mtkit.data.batch import make_batch
from mtkit.evaluate.alignment import Link, word_links, word_weights
from mtkit.text.syntax import split_words

_BATCH = 50
NO_ALIGNMENTS = "this corpus has no right alignments; the synthetic one has"


def aligning_map(maps: Sequence[AttentionMap]) -> Tensor:
    """Of one sentence pair's maps the one that follows word alignments best, [target, source]: of a Transformer the
    mean over the heads of the decoder layer below the last (Garg et al. 2019, §4), else the only one.
    """
    found = [each for each in maps if each.layer == TOP or each.layer.endswith("cross_attention")]
    layers = list(dict.fromkeys(each.layer for each in found))
    chosen = layers[max(0, len(layers) - 2)]
    return torch.stack([each.weights for each in found if each.layer == chosen]).mean(0)


def reference_links(loaded: LoadedModel, sources: Sequence[str], references: Sequence[str]) -> list[set[Link]]:
    """For each word of a reference the source word that is looked at most, in the words that the embedded grammar's
    alignments count.

    Raises: ValueError for text whose words the tokenizer does not keep apart.
    """
    return [word_links(*each) for each in _attention_over_words(loaded, sources, references)]


def reference_weights(
    loaded: LoadedModel, sources: Sequence[str], references: Sequence[str]
) -> list[np.ndarray | None]:
    """The attention of each reference over its source, [target words, source words]; words as `reference_links` counts
    them. None for a pair whose words the tokenizer does not keep apart, such as one with a typed "▁".
    """
    found: list[np.ndarray | None] = []
    for each in _attention_over_words(loaded, sources, references):
        try:
            found.append(word_weights(*each))
        except ValueError:
            found.append(None)
    return found


def _attention_over_words(
    loaded: LoadedModel, sources: Sequence[str], references: Sequence[str]
) -> Iterator[tuple[np.ndarray, list[str], list[str], list[str], list[str]]]:
    """Of each pair the map, [target pieces, source pieces], both sides' pieces and both sides' words."""
    tokenizers = loaded.tokenizers
    device = next(loaded.model.parameters()).device
    for start in range(0, len(sources), _BATCH):
        src, trg = sources[start : start + _BATCH], references[start : start + _BATCH]
        batch = make_batch(tokenizers.src.encode(src), tokenizers.trg.encode(trg)).to(device)
        pieces = zip(tokenizers.src.split(src), tokenizers.trg.split(trg), strict=True)
        for maps, (src_pieces, trg_pieces), one, other in zip(
            attention_maps(loaded.model, batch), pieces, src, trg, strict=True
        ):
            # Lower case, a fraction spelt out: the words are compared as the pieces write them.
            words = tokenizers.src.normalize(split_words(one)), tokenizers.trg.normalize(split_words(other))
            yield aligning_map(maps).numpy(), src_pieces, trg_pieces, *words
