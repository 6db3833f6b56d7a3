"""Replace UNK through the attention (Luong et al. 2015, §4; Jean et al. 2015, §3.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from torch import Tensor

from mtkit.errors import DataError
from mtkit.text.lines import read_lines
from mtkit.text.tokenizer import UNK_ID, Tokenizer


def words_for_unknown(
    tokens: Sequence[int],
    attention: Tensor,
    src_pieces: Sequence[str],
    src_tokenizer: Tokenizer,
    dictionary: Mapping[str, str],
) -> list[str]:
    """For each UNK among the target tokens, what stands for the source word that it looked at most.

    That is the dictionary's translation of the word, or the word itself; a name is the same in both languages.

    Args:
        attention: [trg_len + 1, src_len], EOS last on both sides.
        src_pieces: the source as `Tokenizer.split` cuts it, so that unknown words keep their letters.
    """
    found = []
    for position, token in enumerate(tokens):
        if token == UNK_ID:
            word = src_tokenizer.word_at(src_pieces, int(attention[position, : len(src_pieces)].argmax()))
            found.append(dictionary.get(word, word))
    return found


def load_dictionary(path: str | Path) -> dict[str, str]:
    """Source word → target word, from lines of two columns with a tab between; of a repeated word the first counts.

    Raises: DataError for a file that cannot be read, or a line of another shape.
    """
    dictionary: dict[str, str] = {}
    for number, line in enumerate(read_lines(path), start=1):
        if not line:
            continue
        columns = line.split("\t")
        if len(columns) != 2 or not all(columns):
            raise DataError(f"{path}:{number}: expected a source word, a tab and a target word")
        dictionary.setdefault(*columns)
    return dictionary
