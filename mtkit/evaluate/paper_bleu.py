"""BLEU as the papers of 2014 to 2017 printed it: multi-bleu.perl on the tokens of the Moses tokenizer, unsmoothed.

Sutskever, Bahdanau, Luong and Gehring have it so. Vaswani et al. (En-De) also cut compounds at hyphens, which was put
at 0.7 to 1 BLEU more. Between systems of today sacreBLEU's own settings compare.
"""

from __future__ import annotations

import re
from typing import Any

from sacrebleu.metrics import BLEU
from sacrebleu.metrics.bleu import BLEUScore
from sacremoses import MosesTokenizer

_COMPOUND = re.compile(r"(\S)-(\S)")


class PaperBLEU(BLEU):
    """sacreBLEU's BLEU on Moses tokens.

    Args:
        lang: whose abbreviations and apostrophes the tokenizer knows; an unknown one is cut by the general rules.
        split_compounds: cut a-b into a ##AT##-##AT## b, as `get_ende_bleu.sh` of the Transformer's authors does.
    """

    def __init__(self, lang: str, *, split_compounds: bool = False, **settings: Any) -> None:
        self._moses = MosesTokenizer(lang)
        self._splits = split_compounds
        # force: sacreBLEU would warn of text that looks tokenised.
        super().__init__(tokenize="none", smooth_method="none", force=True, **settings)
        self.tokenizer_signature = f"moses-{lang}{'-split' if split_compounds else ''}"

    def _preprocess_segment(self, sent: str) -> str:
        tokens = str(self._moses.tokenize(super()._preprocess_segment(sent), return_str=True, escape=False))
        return _COMPOUND.sub(r"\1 ##AT##-##AT## \2", tokens) if self._splits else tokens

    def _compute_score_from_stats(self, stats: list[int]) -> BLEUScore:
        score = super()._compute_score_from_stats(stats)
        score.name = "paper BLEU (compounds split)" if self._splits else "paper BLEU"
        return score
