"""What the study of attention maps counts before it looks at any map."""

from __future__ import annotations

import pytest

from mtkit.reproduce.studies.attention_maps import negation_words


@pytest.mark.parametrize(
    ("src", "trg", "places"),
    [
        ("I do not know.", "Je ne sais pas.", (2, 1, 3)),
        ("It isn't here, he said.", "Il n\u2019est pas ici, dit-il.", (1, 1, 2)),
        ("This cannot be so.", "Cela ne peut pas être ainsi.", (1, 1, 3)),
        ("I know.", "Je sais.", None),
        ("I do not know, do not ask.", "Je ne sais pas, ne demande pas.", None),
        ("I do not know anybody.", "Je ne connais personne.", None),
        ("A walk of no step.", "Pas de pas, ne bouge.", None),
    ],
)
def test_negated_pairs_have_each_word_once(src: str, trg: str, places: tuple[int, int, int] | None) -> None:
    """CH-35: not, ne … pas."""
    assert negation_words(src, trg) == places
