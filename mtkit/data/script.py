"""Which script a text is written in: enough to tell a text of one language from one of another alphabet."""

from __future__ import annotations

import functools
import unicodedata
from typing import get_args

from mtkit.recipe import Script

# The first word of a letter's name in Unicode tells its script; these languages use letters of several.
_NAMED = {
    "han": ("CJK",),
    "japanese": ("CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA"),
    "hangul": ("HANGUL", "CJK"),
}
_WORDS = {script: _NAMED.get(script, (script.upper(),)) for script in get_args(Script)}


def is_in_script(text: str, script: Script) -> bool:
    """Whether half of the letters or more are of a script; true of a text without letters, such as a number."""
    letters = [character for character in text if character.isalpha()]
    n_fitting = sum(_first_word(letter) in _WORDS[script] for letter in letters)
    return 2 * n_fitting >= len(letters)


@functools.cache
def _first_word(letter: str) -> str:
    words = unicodedata.name(letter, "UNNAMED").split()
    return words[1] if words[0] in ("FULLWIDTH", "HALFWIDTH") and len(words) > 1 else words[0]
