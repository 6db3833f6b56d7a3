"""Words and punctuation apart, reversibly: what a vocabulary of words needs, as the systems of 2014 and 2015 had it.

    He said: "don't!"    →    He said ▂: "▂ don't ▂! ▂"

The mark U+2582 stands on the punctuation, on the side where the text has no blank, so that `join_words` gives the text
back. Apostrophes, hyphens, full stops and commas between two letters or digits stay inside a word (don't, l'homme,
well-known, 3.5). A typed mark becomes a blank.
"""

from __future__ import annotations

import functools
import re
import sys
import unicodedata

MARK = "\u2582"
_MARKED = re.compile(f" {MARK}|{MARK} ")


def split_words(line: str) -> str:
    """The line with one blank between words and punctuation; the same words whatever blanks stood between them."""
    tokens: list[str] = []
    end_before = -1
    for match in _token_pattern().finditer(line.replace(MARK, " ")):
        token, is_word = match[0], match.lastgroup == "word"
        if match.start() == end_before:
            if is_word:
                tokens[-1] += MARK
            else:
                token = MARK + token
        tokens.append(token)
        end_before = match.end()
    return " ".join(tokens)


def join_words(text: str) -> str:
    """The inverse: blanks at marks go, and the marks with them."""
    return _MARKED.sub("", text).replace(MARK, "")


@functools.cache
def _token_pattern() -> re.Pattern[str]:
    # \w knows letters and digits, but not the vowel signs and accents that belong to the character before them.
    signs = "".join(
        map(chr, (code for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code)) in ("Mn", "Mc", "Me")))
    )
    letter = rf"[\w\u200c\u200d{signs}]"
    return re.compile(rf"(?P<word>{letter}+(?:['’\-.,]{letter}+)*)|\S[{signs}]*")
