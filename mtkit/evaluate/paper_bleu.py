"""BLEU as the papers of 2014 to 2017 printed it: on tokens, unsmoothed, compounds split at hyphens (En-De).

Their scripts ran on text that Moses had tokenised; here mteval's 13a tokens stand in, which differ in few places. It is
for looking at a paper's figure with like in hand; between systems sacreBLEU's own settings compare.
"""

from __future__ import annotations

import re
from typing import Any

from sacrebleu.metrics import BLEU
from sacrebleu.metrics.bleu import BLEUScore

NAME = "paper BLEU"
_COMPOUND = re.compile(r"(\S)-(\S)")


class PaperBLEU(BLEU):
    """sacreBLEU's BLEU on 13a tokens, a-b cut into a ##AT##-##AT## b as `get_ende_bleu.sh` of the Transformer does."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(tokenize="13a", smooth_method="none", **settings)
        self.tokenizer_signature = "13a-hyphens"

    def _preprocess_segment(self, sent: str) -> str:
        return _COMPOUND.sub(r"\1 ##AT##-##AT## \2", super()._preprocess_segment(sent))

    def _compute_score_from_stats(self, stats: list[int]) -> BLEUScore:
        score = super()._compute_score_from_stats(stats)
        score.name = NAME
        return score
