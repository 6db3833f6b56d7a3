"""How much a translation repeats itself: what attention without a memory of itself tends to do (Luong et al. 2015)."""

from __future__ import annotations

from collections.abc import Sequence

from mtkit.evaluate.bleu import words_of

_LONGEST = 4


def repetition_rate(lines: Sequence[str], trg_lang: str | None = None) -> float:
    """Percent of the words that end a phrase of 1 to 4 words which stands right before itself: `the dog the dog`.

    Words are what stands between blanks, or what BLEU counts in a language written without. A natural text has few:
    'that that', 'very very'.

    Raises: RequestError when the language needs a package that is missing.
    """
    n_words = n_repeated = 0
    for words in words_of(lines, trg_lang):
        n_words += len(words)
        n_repeated += sum(_repeats(words, end) for end in range(1, len(words) + 1))
    return 100 * n_repeated / n_words if n_words else 0.0


def _repeats(words: Sequence[str], end: int) -> bool:
    """Whether the words up to `end` finish with some phrase twice."""
    longest = min(_LONGEST, end // 2)
    return any(words[end - n : end] == words[end - 2 * n : end - n] for n in range(1, longest + 1))
