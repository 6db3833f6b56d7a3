"""Telling one alphabet from another by the names that Unicode gives to letters."""

from __future__ import annotations

from typing import get_args

import pytest

from mtkit.data.script import is_in_script
from mtkit.recipe import Script

SAMPLES: dict[Script, str] = {
    "arabic": "أكلت تفاحة.",
    "armenian": "Ես խնձոր կերա:",
    "bengali": "আমি একটি আপেল খেয়েছি।",
    "cyrillic": "Я съел яблоко, їжак.",
    "devanagari": "मैंने एक सेब खाया।",
    "georgian": "ვაშლი ვჭამე.",
    "greek": "Έφαγα ένα μήλο.",
    "han": "我吃了一个苹果。",
    "hangul": "사과를 먹었다.",
    "hebrew": "אכלתי תפוח.",
    "japanese": "ﾘﾝｺﾞを食べました。",
    "khmer": "ខ្ញុំញ៉ាំប៉ោម។",
    "lao": "ຂ້ອຍກິນໝາກແອັບເປີ້ນ.",
    "latin": "I ate an apple, Äpfel, táo, Ａ.",
    "tamil": "நான் ஒரு ஆப்பிள் சாப்பிட்டேன்.",
    "telugu": "నేను ఒక ఆపిల్ తిన్నాను.",
    "thai": "ฉันกินแอปเปิ้ล",
}


def test_every_script_has_a_sample() -> None:
    assert set(SAMPLES) == set(get_args(Script))


@pytest.mark.parametrize("script", get_args(Script))
def test_a_text_is_in_its_own_script_and_in_no_other(script: Script) -> None:
    """But for Han characters, which Japanese and Korean have, too."""
    found = {other for other in get_args(Script) if is_in_script(SAMPLES[script], other)}
    assert found - ({"japanese", "hangul"} if script == "han" else set()) == {script}


def test_half_of_the_letters_are_enough_and_other_characters_do_not_count() -> None:
    assert is_in_script("ab яю 123 !", "latin") and is_in_script("ab яю 123 !", "cyrillic")
    assert not is_in_script("a яю", "latin")
    assert is_in_script("12 % …", "greek") and is_in_script("", "thai")
