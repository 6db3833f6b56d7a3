"""Word alignments: from attention to hard links, from tokens to words, and how far from the right ones.

A link is (source position, target position), both from 0.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from mtkit.text.words import MARK

Link = tuple[int, int]
_BLANK = "\u2581"


def word_links(
    attention: ArrayLike,
    src_pieces: Sequence[str],
    trg_pieces: Sequence[str],
    src_words: Sequence[str],
    trg_words: Sequence[str],
) -> set[Link]:
    """For each target word the source word that it looks at most (Luong et al. 2015, §5.5).

    Args and Raises: see `word_weights`.
    """
    weights = word_weights(attention, src_pieces, trg_pieces, src_words, trg_words)
    return {(int(row.argmax()), word) for word, row in enumerate(weights) if row.max(initial=0) > 0}


def word_weights(
    attention: ArrayLike,
    src_pieces: Sequence[str],
    trg_pieces: Sequence[str],
    src_words: Sequence[str],
    trg_words: Sequence[str],
) -> np.ndarray:
    """Attention from words to words, [target words, source words].

    The weights of a word's pieces are summed over the source and averaged over the target.

    Args:
        attention: [trg_len, src_len], without EOS, or with EOS last on either side.
        src_pieces, trg_pieces: the tokens, as SentencePiece cuts them.
        src_words, trg_words: the words that links count; without blanks they are the same letters as the pieces.

    Raises: ValueError when pieces and words are not the same text.
    """
    weights = np.asarray(attention, dtype=float)[: len(trg_pieces), : len(src_pieces)]
    of_src, of_trg = piece_words(src_pieces, src_words), piece_words(trg_pieces, trg_words)
    by_word = np.zeros((len(trg_words), len(src_words)))
    n_pieces = np.zeros(len(trg_words))
    for row, trg_word in enumerate(of_trg):
        n_pieces[trg_word] += 1
        for column, src_word in enumerate(of_src):
            by_word[trg_word, src_word] += weights[row, column]
    return by_word / np.maximum(n_pieces, 1)[:, None]


def piece_words(pieces: Sequence[str], words: Sequence[str]) -> list[int]:
    """The word of each piece: that of its first letter; a piece that is a blank alone belongs to the next one.

    Raises: ValueError when they are not the same text.
    """
    # French sets a no-break space before its colon: no letter of a word, but one of a piece.
    letters = ["".join(piece.replace(_BLANK, "").replace(MARK, "").split()) for piece in pieces]
    if "".join(letters) != "".join(words):
        raise ValueError(f"the pieces {' '.join(pieces)} are not the words {' '.join(words)}")
    word_of_letter = [number for number, word in enumerate(words) for _ in word]
    found, at = [], 0
    for piece in letters:
        found.append(word_of_letter[min(at, len(word_of_letter) - 1)])
        at += len(piece)
    return found


def alignment_error_rate(
    found: Iterable[Collection[Link]],
    sure: Iterable[Collection[Link]],
    possible: Iterable[Collection[Link]] | None = None,
) -> float:
    """1 - (|A n S| + |A n P|) / (|A| + |S|) over all sentences, 0 at best (Och and Ney 2003, eq. 8).

    `possible` links contain the sure ones; without them all right links are sure. Without any link it is 0.
    """
    n_hits = n_all = 0
    right = [set(links) for links in sure]
    may = right if possible is None else [set(links) | own for links, own in zip(possible, right, strict=True)]
    for links, own, more in zip(found, right, may, strict=True):
        ours = set(links)
        n_hits += len(ours & own) + len(ours & more)
        n_all += len(ours) + len(own)
    return 1 - n_hits / n_all if n_all else 0.0
