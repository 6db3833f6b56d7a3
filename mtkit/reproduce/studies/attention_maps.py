"""Attention maps: do they follow word alignments, what do heads do, what does a weight tell (chapter, 1.5.3)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from mtkit import models
from mtkit.analyze.attention_maps import AttentionMap, attention_maps
from mtkit.analyze.influence import left_out, source_gradients
from mtkit.analyze.patterns import crossing_deficit, traits
from mtkit.checkpoint import LoadedModel
from mtkit.data.batch import Batch, make_batch
from mtkit.evaluate.alignment import Link, alignment_error_rate
from mtkit.evaluate.bleu import MIN_SEGMENTS
from mtkit.evaluate.plots import attention_figure, attention_grid_figure
from mtkit.models import TranslationModel
from mtkit.reproduce.findings import Cell, Findings, Measured, Picture, Table
from mtkit.reproduce.head_patterns import (
    END,
    head_table,
    pattern_verdicts,
    repeated,
    sharpening,
    sparsity,
    specialised,
    traits_of_heads,
)
from mtkit.reproduce.laboratory import Laboratory, ParallelText
from mtkit.reproduce.study import WMT_EN_DE, Settings, Training
from mtkit.reproduce.verdict import (
    INTERVAL_RULE,
    UNTESTABLE,
    Outcome,
    Verdict,
    exactly,
    interval_above_zero,
    together,
)
from mtkit.reproduce.word_alignment import NO_ALIGNMENTS, aligning_map, reference_links, reference_weights
from mtkit.text.syntax import split_words
from mtkit.text.tokenizer import PAD_ID, UNK_ID

TITLE = "Attention maps: alignments, patterns of heads, weights against gradients"
SUBJECT = (
    "The attention that an RNNsearch and a Transformer pay while they read test sentences with their references: how "
    "near it is to the right word alignment where that is known, which patterns the heads show, and whether the "
    "weights rank source words as the gradients of the model's own predictions do. Each seed's models are judged; the "
    "heads that are listed and the maps that are drawn are those of the first."
)
_N_PAIRS = 100  # sentences that are looked at
_N_GRADIENTS = 30
_N_GRADIENT_STEPS = 6  # target positions of each whose gradients are taken
_AGREES, _SAME = 0.7, 0.9  # rank correlations
_WHICH_MAP = (
    "Of a Transformer here, in the table and in CH-33, 34 and 36: the mean of the heads of the decoder layer below the "
    "last, which follows word alignments best (Garg et al. 2019)."
)
_ROUNDING = 1e-5  # of a row's sum in float32
_PICTURE_WORDS = range(6, 13)
_NEGATION_LANGUAGES = ("en", "fr")


def trainings(settings: Settings) -> list[Training]:
    if settings.scale == "paper":
        files = ("wmt14/rnnsearch_50.yaml", "wmt14/transformer_base.yaml")
    else:
        files = (f"{settings.scale}/rnnsearch.yaml", f"{settings.scale}/transformer.yaml")
    data = WMT_EN_DE if settings.scale == "paper" else ()
    return [Training(label, file, data) for label, file in zip(("RNNsearch", "Transformer"), files, strict=True)]


class _Looked(NamedTuple):
    """What one model looks at in each sentence pair."""

    label: str
    loaded: LoadedModel
    batch: Batch
    src_tokens: list[list[str]]  # of each pair, with </s>
    trg_tokens: list[list[str]]
    maps: list[list[AttentionMap]]

    def aligning(self, pair: int) -> Tensor:
        """The map that follows word alignments best."""
        return aligning_map(self.maps[pair])


def foresee(laboratory: Laboratory) -> list[str]:
    first = trainings(laboratory.settings)[0]
    data = laboratory.place(first, laboratory.seeds[0]).recipe.data
    return [
        *([] if (data.src, data.trg) == _NEGATION_LANGUAGES else ["CH-35: it takes English and French"]),
        *([] if laboratory.alignments(first, laboratory.test_set(first)) else [f"CH-34, CH-36: {NO_ALIGNMENTS}"]),
    ]


def report(laboratory: Laboratory) -> Findings:
    contestants = trainings(laboratory.settings)
    set_name = laboratory.test_set(contestants[0])
    text = laboratory.test_text(contestants[0], set_name)
    gold = laboratory.alignments(contestants[0], set_name)
    verdicts, alignments = [], []
    tables: list[Table] = []
    pictures: list[Picture] = []
    for seed in laboratory.seeds:
        looked = [_look(laboratory, training, seed, text) for training in contestants]
        search, transformer = looked
        alignment_verdicts, alignment = _alignments(looked, text, gold)
        heads = traits_of_heads(transformer.maps)
        untrained_maps = attention_maps(_untrained(transformer.loaded, seed), transformer.batch)
        untrained = traits_of_heads(untrained_maps)
        alignments.append(alignment)
        verdicts.append(
            [
                *alignment_verdicts,
                _negation(search, text),
                sharpening(heads, untrained),
                sparsity(heads, untrained),
                _drawn(looked),
                *pattern_verdicts(heads, untrained, transformer.maps, transformer.src_tokens),
                _blocks(transformer, text),
                specialised(heads),
                repeated(transformer.maps, untrained_maps),
                _weight_is_not_importance(looked),
            ]
        )
        if seed == laboratory.seeds[0]:  # heads of two trainings have nothing but their numbers in common
            tables, pictures = [head_table(heads, untrained, len(transformer.maps))], _pictures(looked, text)
    return Findings(
        [over_seeds(of_claim) for of_claim in zip(*verdicts, strict=True)],
        [_alignment_table(alignments, gold is not None), *tables],
        pictures,
        ["Syntactic and coreference heads (chapter, figure 1-15) cannot be told without a parser and are not claimed."],
    )


def over_seeds(verdicts: Sequence[Verdict]) -> Verdict:
    """One verdict for those of all seeds on a claim: what they agree on, otherwise not shown."""
    first = verdicts[0]
    if len(verdicts) == 1:
        return first
    reasons = [each.reason for each in verdicts]
    numbered = list(enumerate(verdicts, start=1))
    return first._replace(
        outcome=first.outcome if len({each.outcome for each in verdicts}) == 1 else "not shown",
        reason=reasons[0]
        if len(set(reasons)) == 1
        else "; ".join(f"seed {seed}: {each.reason}" for seed, each in numbered),
        rule=f"{first.rule}; of several seeds all must agree, otherwise not shown",
        numbers={f"{name}, seed {seed}": value for seed, each in numbered for name, value in each.numbers.items()},
    )


def _look(laboratory: Laboratory, training: Training, seed: int, text: ParallelText) -> _Looked:
    loaded = laboratory.model(training, seed)
    sides = (
        (loaded.tokenizers.src, text.sources[:_N_PAIRS]),
        (loaded.tokenizers.trg, text.references[:_N_PAIRS]),
    )
    src_rows, trg_rows = (tokenizer.encode(lines) for tokenizer, lines in sides)
    src_tokens, trg_tokens = ([[*row, END] for row in tokenizer.split(lines)] for tokenizer, lines in sides)
    batch = make_batch(src_rows, trg_rows).to(next(loaded.model.parameters()).device)
    return _Looked(training.label, loaded, batch, src_tokens, trg_tokens, attention_maps(loaded.model, batch))


def _untrained(loaded: LoadedModel, seed: int) -> TranslationModel:
    torch.manual_seed(seed)
    sizes = (loaded.tokenizers.src.vocab_size, loaded.tokenizers.trg.vocab_size)
    return models.build(loaded.recipe.model, *sizes, PAD_ID).to(next(loaded.model.parameters()).device)


# --- Word alignments --------------------------------------------------------------------------------------------------

# Of each system what stands in its row of the table: distance, right links and crossing ones in percent, error rate.
_Alignment = dict[str, tuple[float | None, ...]]


def _alignments(
    looked: Sequence[_Looked], text: ParallelText, gold: list[list[Link]] | None
) -> tuple[list[Verdict], _Alignment]:
    """How attention compares with right alignments, and with a diagonal that knows nothing of words."""
    lag = {each.label: traits([each.aligning(pair) for pair in range(len(each.maps))]) for each in looked}
    even = traits(
        [torch.full(each.shape, 1 / each.size(1)) for each in map(looked[0].aligning, range(len(looked[0].maps)))]
    )
    verdicts = [
        Verdict(
            "CH-33",
            "attention lies near the diagonal",
            "shown" if all(each.lag < even.lag / 2 for each in lag.values()) else "not shown",
            ", ".join(f"{name} {each.lag:.3f}" for name, each in lag.items())
            + f" of the sentence from the diagonal on the mean, even attention {even.lag:.3f}",
            "shown: less than half the distance of even attention, for each model",
        )
    ]
    if gold is None:
        for claim, statement in _ALIGNMENT_CLAIMS.items():
            verdicts.append(Verdict(claim, statement, UNTESTABLE, NO_ALIGNMENTS, _ALIGNMENT_RULE))
        return verdicts, {name: (each.lag, None, None, None) for name, each in lag.items()}
    gold = gold[:_N_PAIRS]
    pairs = (text.sources[:_N_PAIRS], text.references[:_N_PAIRS])
    found = {each.label: reference_links(each.loaded, *pairs) for each in looked}
    found["diagonal"] = [_diagonal(src, trg) for src, trg in _words(text)]
    crossing = [_crossing(links) for links in gold]
    right = {name: _share_right(links, gold) for name, links in found.items()}
    right_crossing = {name: _share_right(links, crossing) for name, links in found.items()}
    error = {name: alignment_error_rate(links, gold) for name, links in found.items()}
    names = [each.label for each in looked]
    judged = (
        (right, gold, "target words with a right link"),
        (right_crossing, crossing, "target words whose right link another one crosses"),
    )
    for (claim, statement), (shares, links, words) in zip(_ALIGNMENT_CLAIMS.items(), judged, strict=True):
        holds = all(shares[name] > max(0.5, shares["diagonal"]) for name in names)
        n_words = sum(len({word for _, word in each}) for each in links)
        reason = ", ".join(f"{name} {share:.0%}" for name, share in shares.items()) + f" of the {n_words:,} {words}"
        verdicts.append(Verdict(claim, statement, "shown" if holds else "not shown", reason, _ALIGNMENT_RULE))
    return verdicts, {
        name: (lag[name].lag if name in lag else None, 100 * right[name], 100 * right_crossing[name], error[name])
        for name in found
    }


def _alignment_table(by_seed: Sequence[_Alignment], is_gold: bool) -> Table:
    rows: list[list[Cell]] = []
    for name in by_seed[0]:
        columns = zip(*(found[name] for found in by_seed), strict=True)
        known = [tuple(value for value in column if value is not None) for column in columns]
        rows.append([name, *(Measured(values, None, 3) if values else None for values in known)])
    header = (
        *("system", "distance from the diagonal", "links right, %", "crossing links right, %"),
        "alignment error rate",
    )
    note = (
        f"The first {_N_PAIRS} test sentences. A target word is linked to the source word that it looks at most; "
        "crossing are right links that another right link crosses. Papers: alignment error rate 0.34 to 0.39 (Luong et "
        "al. 2015)."
    )
    return Table("alignment", "Attention and word alignment", header, rows, note if is_gold else "")


_ALIGNMENT_CLAIMS = {
    "CH-36": "attention peaks at the word that is translated",
    "CH-34": "attention follows words that change their order",
}
_ALIGNMENT_RULE = "shown: for each model more than half of the target words, and more than on a plain diagonal"


def _words(text: ParallelText) -> list[tuple[list[str], list[str]]]:
    pairs = zip(text.sources[:_N_PAIRS], text.references[:_N_PAIRS], strict=True)
    return [(split_words(src), split_words(trg)) for src, trg in pairs]


def _diagonal(src: Sequence[str], trg: Sequence[str]) -> set[Link]:
    return {(word * len(src) // len(trg), word) for word in range(len(trg))}


def _crossing(links: Sequence[Link]) -> list[Link]:
    """The links that another one of the sentence crosses."""
    return [
        (src, trg)
        for src, trg in links
        if any((src - other_src) * (trg - other_trg) < 0 for other_src, other_trg in links)
    ]


def _share_right(found: Sequence[set[Link]], gold: Sequence[Sequence[Link]]) -> float:
    """Of the target words that have a right link, those whose found link is one of them."""
    n_right = n_all = 0
    for links, right in zip(found, gold, strict=True):
        words = {trg for _, trg in right}
        n_all += len(words)
        n_right += len({trg for src, trg in links if (src, trg) in set(right)})
    return n_right / n_all if n_all else 0.0


def _negation(looked: _Looked, text: ParallelText) -> Verdict:
    """CH-35: English 'not' in the attention of French 'ne' and 'pas', in sentences that have each of them once."""
    statement = "one source word is looked at for two target words (not, ne … pas)"
    data = looked.loaded.recipe.data
    pairs = list(zip(text.sources, text.references, strict=True))
    is_french = (data.src, data.trg) == _NEGATION_LANGUAGES
    negated = [(pair, words) for pair in pairs if is_french and (words := negation_words(*pair))][:_N_PAIRS]
    weights = reference_weights(looked.loaded, [src for (src, _), _ in negated], [trg for (_, trg), _ in negated])
    values = [
        min(found[first, negation], found[second, negation]) - 1 / found.shape[1]
        for found, (_, (negation, first, second)) in zip(weights, negated, strict=True)
        if found is not None
    ]
    if len(values) < MIN_SEGMENTS:
        reason = f"it takes English and French and {MIN_SEGMENTS} negated test sentences; there are {len(values)}"
        return Verdict("CH-35", statement, UNTESTABLE, reason, INTERVAL_RULE)
    what = f"{looked.label}: the weight on 'not', of 'ne' or of 'pas', whichever is less, above an even share"
    return interval_above_zero("CH-35", statement, np.array(values), what)


def negation_words(src: str, trg: str) -> tuple[int, int, int] | None:
    """Where 'not', 'ne' and 'pas' stand, if each stands there once."""
    english, french = (split_words(text.lower().replace("\u2019", "'")) for text in (src, trg))
    found = (
        [place for place, word in enumerate(english) if word in ("not", "cannot") or word.endswith("n't")],
        [place for place, word in enumerate(french) if word == "ne" or word.startswith("n'")],
        [place for place, word in enumerate(french) if word == "pas"],
    )
    return (found[0][0], found[1][0], found[2][0]) if [len(each) for each in found] == [1, 1, 1] else None


# --- Maps as a whole --------------------------------------------------------------------------------------------------


def _drawn(looked: Sequence[_Looked]) -> Verdict:
    """The maps are what is drawn: of every pair a row for each target token, a column for each source token."""
    holds, n_maps = True, 0
    for each in looked:
        for pair, tokens in enumerate(zip(each.trg_tokens, each.src_tokens, strict=True)):
            weights = each.aligning(pair)
            holds = holds and weights.shape == tuple(map(len, tokens))
            holds = holds and bool((weights.sum(1) - 1).abs().max() < _ROUNDING)
            n_maps += 1
    return exactly(
        "CH-93",
        "a heat map has a row for each target token and a column for each source token, with </s>, and rows sum to 1",
        holds,
        f"{n_maps} maps; one of each model is drawn below, on a linear and on a logarithmic scale",
    )


def _blocks(looked: _Looked, text: ParallelText) -> Verdict:
    """Two sentences in one line: does less of the encoder's weight cross the border than goes as far elsewhere?"""
    tokenizers = looked.loaded.tokenizers
    device = next(looked.loaded.model.parameters()).device
    values = []
    for first in range(0, min(_N_PAIRS, len(text.sources)) - 1, 2):
        firsts, seconds = tokenizers.src.encode(text.sources[first : first + 2])
        target = tokenizers.trg.encode(text.references[first : first + 1])
        batch = make_batch([[*firsts, *seconds]], target).to(device)
        maps = [each.weights for each in attention_maps(looked.loaded.model, batch)[0] if each.from_source]
        values.append(float(np.mean([crossing_deficit(weights, len(firsts)) for weights in maps])))
    return interval_above_zero(
        "CH-97",
        "several sentences in one input show as blocks",
        np.array(values),
        "weight of an encoder row that does not cross the border between two sentences but goes as far elsewhere",
    )


# --- Weights and gradients --------------------------------------------------------------------------------------------


def _weight_is_not_importance(looked: Sequence[_Looked]) -> Verdict:
    """Three measures of a source word's part in a prediction, two by two (Jain and Wallace 2019)."""
    found = {each.label: _agreements(each) for each in looked}
    outcomes: list[Outcome] = []
    for each in found.values():
        attention = max(each.attention_gradient, each.attention_left_out)
        differs = attention < min(_AGREES, each.gradient_left_out)
        outcomes.append("shown" if differs else "contradicted" if attention > _SAME else "not shown")
    reason = "rank correlations: " + "; ".join(
        f"{name}: attention and gradient {each.attention_gradient:.2f}, attention and leaving the word out "
        f"{each.attention_left_out:.2f}, gradient and leaving it out {each.gradient_left_out:.2f}"
        for name, each in found.items()
    )
    rule = (
        f"shown: attention's mean rank correlations (Spearman) with both others lie below {_AGREES} and below that of "
        f"the two with each other, for each model; contradicted: one above {_SAME}"
    )
    return Verdict("CH-101", "a weight is not a word's importance", together(outcomes), reason, rule)


class _Agreements(NamedTuple):
    """Mean rank correlations over the source words of a sentence, of two measures each."""

    attention_gradient: float
    attention_left_out: float
    gradient_left_out: float


def _agreements(looked: _Looked) -> _Agreements:
    """Over the first predictions of some sentences; a word is left out by putting <unk> in its place."""
    src, src_pad_mask, trg_in, trg_out = (part[:_N_GRADIENTS] for part in looked.batch)
    longest = int((~src_pad_mask).sum(1).max())
    # What comes after these predictions does not change them.
    small = Batch(
        src[:, :longest], src_pad_mask[:, :longest], trg_in[:, :_N_GRADIENT_STEPS], trg_out[:, :_N_GRADIENT_STEPS]
    )
    changes = left_out(looked.loaded.model, small, UNK_ID).cpu()
    values = []
    for position in range(small.trg_out.size(1)):
        gradients = source_gradients(looked.loaded.model, small, position).cpu()
        for row in range(len(gradients)):
            weights = looked.aligning(row)
            n_rows, n_words = weights.shape
            if position < n_rows and n_words > 2:
                measures = weights[position], gradients[row, :n_words], changes[row, position, :n_words]
                attention, gradient, left = (each.numpy() for each in measures)
                values.append(
                    (
                        rank_correlation(attention, gradient),
                        rank_correlation(attention, left),
                        rank_correlation(gradient, left),
                    )
                )
    return _Agreements(*np.nanmean(values, axis=0).tolist())


def rank_correlation(first: ArrayLike, second: ArrayLike) -> float:
    """Spearman's: 1 where both order alike, -1 where one reverses the other; equal values share the mean of their
    ranks. NaN where all values of one are equal.
    """
    ranks = [_ranks(values) for values in (first, second)]
    if any(np.ptp(each) == 0 for each in ranks):
        return math.nan
    return round(float(np.corrcoef(ranks)[0, 1]), 12)


def _ranks(values: ArrayLike) -> np.ndarray:
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray(np.cumsum(counts)[place] - (counts[place] - 1) / 2)


# --- Pictures ---------------------------------------------------------------------------------------------------------


def _pictures(looked: Sequence[_Looked], text: ParallelText) -> list[Picture]:
    pair = next((n for n, src in enumerate(text.sources[:_N_PAIRS]) if len(src.split()) in _PICTURE_WORDS), 0)
    pictures = []
    for each in looked:
        src, trg = each.src_tokens[pair], each.trg_tokens[pair]
        for scale in ("linear", "log"):
            figure = attention_figure(each.aligning(pair).numpy(), src, trg, scale=scale)
            name = f"{each.label.lower()}-{scale}"
            pictures.append(
                Picture(name, f"{each.label}: attention over the source, {scale} scale", figure, _WHICH_MAP)
            )
    maps = looked[1].maps[pair]
    for part in ("encoder", "decoder"):
        chosen = [each for each in maps if each.layer.startswith(part) and each.layer.endswith("self_attention")]
        n_heads = 1 + max(each.head for each in chosen)
        named = [(f"{each.layer.split('.')[1]}: head {each.head + 1}", each.weights.numpy()) for each in chosen]
        tokens = looked[1].src_tokens[pair] if part == "encoder" else ["<s>", *looked[1].trg_tokens[pair][:-1]]
        figure = attention_grid_figure(named, n_heads, tokens=(tokens, tokens), axes_names=("looked at", "token"))
        title = f"Transformer: every head of the {part}'s self-attention"
        pictures.append(Picture(f"{part}-heads", title, figure, f"Of the sentence: {text.sources[pair]}"))
    return pictures
