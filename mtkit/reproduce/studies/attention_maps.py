"""Attention maps: do they follow word alignments, what do heads do, what does a weight tell (chapter, 1.5.3)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from mtkit import models
from mtkit.analyze.attention_maps import AttentionMap, attention_maps
from mtkit.analyze.influence import left_out, source_gradients
from mtkit.analyze.patterns import Traits, crossing_deficit, divergence, label, traits
from mtkit.checkpoint import LoadedModel
from mtkit.data.batch import Batch, make_batch
from mtkit.evaluate.alignment import Link, alignment_error_rate
from mtkit.evaluate.plots import attention_figure, attention_grid_figure
from mtkit.models import TranslationModel
from mtkit.reproduce.findings import Cell, Findings, Picture, Table
from mtkit.reproduce.laboratory import Laboratory, Translated
from mtkit.reproduce.study import WMT_EN_DE, Settings, Training
from mtkit.reproduce.verdict import INTERVAL_RULE, Outcome, Verdict, interval_above_zero, together
from mtkit.reproduce.word_alignment import aligning_map, reference_links, reference_weights
from mtkit.text.syntax import split_words
from mtkit.text.tokenizer import PAD_ID, UNK_ID

TITLE = "Attention maps: alignments, patterns of heads, weights against gradients"
SUBJECT = (
    "The attention that an RNNsearch and a Transformer pay while they read test sentences with their references: how "
    "near it is to the right word alignment, which patterns the heads show, and whether the weights rank source words "
    "as the gradients of the model's own predictions do. The first seed's models."
)
_N_PAIRS = 100  # sentences that are looked at
_N_GRADIENTS = 30
_N_GRADIENT_STEPS = 6  # target positions of each whose gradients are taken
_MOST, _FEW_ZEROS = 0.6, 0.01  # weight on three keys, and weights that are 0, of attention that is sparse but dense
_AGREES, _SAME = 0.7, 0.9  # rank correlations
_ALIKE = 0.1  # nats of Jensen-Shannon divergence below which two heads do the same
_FEWEST_NEGATED = 20  # sentences that a claim about negation takes
_PICTURE_WORDS = range(6, 13)


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
    maps: list[list[AttentionMap]]  # of each pair

    def aligning(self, pair: int) -> Tensor:
        """The map that follows word alignments best."""
        return aligning_map(self.maps[pair])


def report(laboratory: Laboratory) -> Findings:
    contestants = trainings(laboratory.settings)
    set_name = laboratory.test_set(contestants[0])
    translated = laboratory.translate([(contestants[0], laboratory.seeds[0])], set_name)
    looked = [_look(laboratory, training, translated) for training in contestants]
    search, transformer = looked
    gold = laboratory.alignments(contestants[0], set_name)
    alignment_verdicts, alignment_table = _alignments(looked, translated, gold)
    heads = _heads(transformer.maps)
    untrained = _heads(attention_maps(_untrained(transformer.loaded), transformer.batch))
    verdicts = [
        *alignment_verdicts,
        _negation(search, translated),
        _sharpening(heads, untrained),
        _sparsity(heads, untrained),
        _blocks(transformer, translated),
        _specialised(heads),
        _repeated(transformer.maps, heads),
        _weight_is_not_importance(looked),
    ]
    return Findings(
        verdicts,
        [alignment_table, _head_table(heads, untrained)],
        _pictures(looked, translated),
        ["Syntactic and coreference heads (chapter, figure 1-15) cannot be told without a parser and are not claimed."],
    )


def _look(laboratory: Laboratory, training: Training, translated: Translated) -> _Looked:
    loaded = laboratory.model(training, laboratory.seeds[0])
    src_rows = loaded.tokenizers.src.encode(translated.sources[:_N_PAIRS])
    trg_rows = loaded.tokenizers.trg.encode(translated.references[:_N_PAIRS])
    batch = make_batch(src_rows, trg_rows).to(next(loaded.model.parameters()).device)
    return _Looked(training.label, loaded, batch, attention_maps(loaded.model, batch))


def _untrained(loaded: LoadedModel) -> TranslationModel:
    torch.manual_seed(1)
    sizes = (loaded.tokenizers.src.vocab_size, loaded.tokenizers.trg.vocab_size)
    return models.build(loaded.recipe.model, *sizes, PAD_ID).to(next(loaded.model.parameters()).device)


# --- Word alignments --------------------------------------------------------------------------------------------------


def _alignments(
    looked: Sequence[_Looked], translated: Translated, gold: list[list[Link]] | None
) -> tuple[list[Verdict], Table]:
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
    header = (
        "system",
        "distance from the diagonal",
        "links right, %",
        "crossing links right, %",
        "alignment error rate",
    )
    if gold is None:
        reason = "this corpus has no right alignments; the synthetic one has"
        for claim, statement in _ALIGNMENT_CLAIMS.items():
            verdicts.append(Verdict(claim, statement, "cannot be tested at this scale", reason, _ALIGNMENT_RULE))
        rows: list[list[Cell]] = [[name, each.lag, None, None, None] for name, each in lag.items()]
        return verdicts, Table("alignment", "Attention and word alignment", header, rows, decimals=3)
    gold = gold[:_N_PAIRS]
    pairs = (translated.sources[:_N_PAIRS], translated.references[:_N_PAIRS])
    found = {each.label: reference_links(each.loaded, *pairs) for each in looked}
    found["diagonal"] = [_diagonal(src, trg) for src, trg in _words(translated)]
    crossing = [_crossing(links) for links in gold]
    right = {name: _share_right(links, gold) for name, links in found.items()}
    right_crossing = {name: _share_right(links, crossing) for name, links in found.items()}
    error = {name: alignment_error_rate(links, gold) for name, links in found.items()}
    names = [each.label for each in looked]
    for (claim, statement), shares in zip(_ALIGNMENT_CLAIMS.items(), (right, right_crossing), strict=True):
        holds = all(shares[name] > max(0.5, shares["diagonal"]) for name in names)
        reason = ", ".join(f"{name} {share:.0%}" for name, share in shares.items()) + " of the target words"
        verdicts.append(Verdict(claim, statement, "shown" if holds else "not shown", reason, _ALIGNMENT_RULE))
    rows = [
        [name, lag[name].lag if name in lag else None, 100 * right[name], 100 * right_crossing[name], error[name]]
        for name in found
    ]
    note = (
        f"The first {_N_PAIRS} test sentences. A target word is linked to the source word that it looks at most; "
        "crossing are right links that another right link crosses. Papers: alignment error rate 0.34 to 0.39 (Luong et "
        "al. 2015)."
    )
    return verdicts, Table("alignment", "Attention and word alignment", header, rows, note, 3)


_ALIGNMENT_CLAIMS = {
    "CH-36": "attention peaks at the word that is translated",
    "CH-34": "attention follows words that change their order",
}
_ALIGNMENT_RULE = "shown: for each model more than half of the target words, and more than on a plain diagonal"


def _words(translated: Translated) -> list[tuple[list[str], list[str]]]:
    pairs = zip(translated.sources[:_N_PAIRS], translated.references[:_N_PAIRS], strict=True)
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


def _negation(looked: _Looked, translated: Translated) -> Verdict:
    """CH-35: English 'not' in the attention of French 'ne' and 'pas', in sentences that have each of them once."""
    statement = "one source word is looked at for two target words (not, ne … pas)"
    data = looked.loaded.recipe.data
    pairs = list(zip(translated.sources, translated.references, strict=True))
    is_french = (data.src, data.trg) == ("en", "fr")
    negated = [(pair, words) for pair in pairs if is_french and (words := negation_words(*pair))][:_N_PAIRS]
    weights = reference_weights(looked.loaded, [src for (src, _), _ in negated], [trg for (_, trg), _ in negated])
    values = [
        min(found[first, negation], found[second, negation]) - 1 / found.shape[1]
        for found, (_, (negation, first, second)) in zip(weights, negated, strict=True)
        if found is not None
    ]
    if len(values) < _FEWEST_NEGATED:
        reason = f"it takes English and French and {_FEWEST_NEGATED} negated test sentences; there are {len(values)}"
        return Verdict("CH-35", statement, "cannot be tested at this scale", reason, INTERVAL_RULE)
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


# --- What heads do ----------------------------------------------------------------------------------------------------


def _heads(pairs: Sequence[Sequence[AttentionMap]]) -> dict[tuple[str, int], Traits]:
    """The traits of every head, from its maps of all sentence pairs."""
    maps: dict[tuple[str, int], list[Tensor]] = {}
    for pair in pairs:
        for each in pair:
            maps.setdefault((each.layer, each.head), []).append(each.weights)
    return {head: traits(found, causal=_is_causal(head[0])) for head, found in maps.items()}


def _is_causal(layer: str) -> bool:
    return layer.startswith("decoder") and layer.endswith("self_attention")


def _head_table(heads: dict[tuple[str, int], Traits], untrained: dict[tuple[str, int], Traits]) -> Table:
    rows: list[list[Cell]] = [
        [
            layer,
            head + 1,
            label(found),
            *(100 * share for share in (found.diagonal, found.adjacent, found.stripes)),
            found.evenness,
            untrained[layer, head].evenness,
            found.noticed,
            100 * found.top_3,
        ]
        for (layer, head), found in heads.items()
    ]
    header = (
        *("layer", "head", "pattern", "own place, %", "beside it, %", "one column, %", "evenness", "untrained"),
        *("keys above 0.1", "three largest, %"),
    )
    note = (
        "Pattern: what holds more than half of the weight; uniform: evenness (entropy over its maximum) above 0.9. "
        f"Means over the rows of the first {_N_PAIRS} test sentences."
    )
    return Table("heads", "Every head of the Transformer", header, rows, note)


def _sharpening(heads: dict[tuple[str, int], Traits], untrained: dict[tuple[str, int], Traits]) -> Verdict:
    before, after = (float(np.mean([each.evenness for each in found.values()])) for found in (untrained, heads))
    n_sharper = sum(heads[head].evenness < untrained[head].evenness for head in heads)
    return Verdict(
        "CH-66",
        "attention begins near uniform and sharpens in training",
        "shown" if before > 0.9 and n_sharper == len(heads) else "not shown",
        f"evenness {before:.2f} untrained, {after:.2f} trained; {n_sharper} of {len(heads)} heads are sharper",
        "shown: untrained evenness above 0.9 on the mean, and every head is sharper after training",
    )


def _sparsity(heads: dict[tuple[str, int], Traits], untrained: dict[tuple[str, int], Traits]) -> Verdict:
    top, before, zeros = (
        float(np.mean([getattr(each, name) for each in found.values()]))
        for found, name in ((heads, "top_3"), (untrained, "top_3"), (heads, "zeros"))
    )
    return Verdict(
        "CH-67",
        "trained attention is dense but effectively sparse",
        "shown" if zeros < _FEW_ZEROS and top > max(_MOST, before) else "not shown",
        f"{top:.0%} of the weight on three keys (untrained {before:.0%}), {zeros:.1%} of the weights exactly 0, mean "
        "over heads and rows",
        f"shown: more than {_MOST:.0%} of the weight on three keys and more than untrained, on the mean over rows that "
        f"see six or more, and fewer than {_FEW_ZEROS:.0%} of the weights exactly 0",
    )


def _blocks(looked: _Looked, translated: Translated) -> Verdict:
    """Two sentences in one line: does less of the encoder's weight cross the border than goes as far elsewhere?"""
    tokenizers = looked.loaded.tokenizers
    device = next(looked.loaded.model.parameters()).device
    values = []
    for first in range(0, min(_N_PAIRS, len(translated.sources)) - 1, 2):
        firsts, seconds = tokenizers.src.encode(translated.sources[first : first + 2])
        target = tokenizers.trg.encode(translated.references[first : first + 1])
        batch = make_batch([[*firsts, *seconds]], target).to(device)
        maps = [each.weights for each in attention_maps(looked.loaded.model, batch)[0] if each.from_source]
        values.append(float(np.mean([crossing_deficit(weights, len(firsts)) for weights in maps])))
    return interval_above_zero(
        "CH-97",
        "several sentences in one input show as blocks",
        np.array(values),
        "weight of an encoder row that does not cross the border between two sentences but goes as far elsewhere",
    )


def _specialised(heads: dict[tuple[str, int], Traits]) -> Verdict:
    counts: dict[str, int] = {}
    for each in heads.values():
        counts[label(each)] = counts.get(label(each), 0) + 1
    named = len(counts.keys() - {"mixed", "uniform"})
    return Verdict(
        "CH-98",
        "heads specialise",
        "shown" if named >= 2 else "not shown",
        "found: " + ", ".join(f"{count} {name}" for name, count in sorted(counts.items(), key=lambda item: -item[1])),
        "shown: heads of at least two of the patterns diagonal, adjacent and stripes",
    )


def _repeated(pairs: Sequence[Sequence[AttentionMap]], heads: dict[tuple[str, int], Traits]) -> Verdict:
    """Heads of one kind of attention that look at the same places, in any layer; even ones say nothing and are left
    out.
    """
    by_head: dict[tuple[str, int], list[Tensor]] = {}
    for pair in pairs[:20]:
        for each in pair:
            if label(heads[each.layer, each.head]) != "uniform":
                by_head.setdefault((each.layer, each.head), []).append(each.weights)
    kinds: dict[str, list[tuple[str, int]]] = {}
    for layer, head in by_head:
        kinds.setdefault(layer.partition(".")[0] + layer.rpartition(".")[2], []).append((layer, head))
    found = []
    for members in kinds.values():
        for number, one in enumerate(members):
            for other in members[number + 1 :]:
                maps = zip(by_head[one], by_head[other], strict=True)
                found.append(float(np.mean([divergence(a, b, causal=_is_causal(one[0])) for a, b in maps])))
    n_alike = sum(value < _ALIKE for value in found)
    nearest = f"; the nearest by {min(found):.3f}" if found else ""
    return Verdict(
        "CH-99",
        "some heads repeat each other",
        "shown" if n_alike else "not shown",
        f"{n_alike} of {len(found)} pairs of heads differ by less than {_ALIKE} nats{nearest}",
        f"shown: a pair with a mean Jensen-Shannon divergence below {_ALIKE} (at most {math.log(2):.2f}), of the heads "
        "that are not uniform",
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
    small = Batch(*(part[:_N_GRADIENTS] for part in looked.batch))
    changes = left_out(looked.loaded.model, small, UNK_ID).cpu()
    values = []
    for position in range(min(_N_GRADIENT_STEPS, small.trg_out.size(1))):
        gradients = source_gradients(looked.loaded.model, small, position).cpu()
        for row in range(len(gradients)):
            weights = looked.aligning(row)
            n_rows, n_words = weights.shape
            if position < n_rows and n_words > 2:
                measures = weights[position], gradients[row, :n_words], changes[row, position, :n_words]
                attention, gradient, left = (each.numpy() for each in measures)
                values.append((_spearman(attention, gradient), _spearman(attention, left), _spearman(gradient, left)))
    return _Agreements(*np.nanmean(values, axis=0).tolist())


def _spearman(first: np.ndarray, second: np.ndarray) -> float:
    ranks = np.array([np.argsort(np.argsort(values)) for values in (first, second)])
    return float(np.corrcoef(ranks)[0, 1])


# --- Pictures ---------------------------------------------------------------------------------------------------------


def _pictures(looked: Sequence[_Looked], translated: Translated) -> list[Picture]:
    pair = next((n for n, src in enumerate(translated.sources[:_N_PAIRS]) if len(src.split()) in _PICTURE_WORDS), 0)
    pictures = []
    for each in looked:
        src = [*each.loaded.tokenizers.src.split([translated.sources[pair]])[0], "</s>"]
        trg = [*each.loaded.tokenizers.trg.split([translated.references[pair]])[0], "</s>"]
        for scale in ("linear", "log"):
            figure = attention_figure(each.aligning(pair).numpy(), src, trg, scale=scale)
            name = f"{each.label.lower()}-{scale}"
            pictures.append(Picture(name, f"{each.label}: attention over the source, {scale} scale", figure))
    maps = looked[1].maps[pair]
    for part in ("encoder", "decoder"):
        chosen = [each for each in maps if each.layer.startswith(part) and each.layer.endswith("self_attention")]
        n_heads = 1 + max(each.head for each in chosen)
        named = [(f"{each.layer.split('.')[1]}: head {each.head + 1}", each.weights.numpy()) for each in chosen]
        figure = attention_grid_figure(named, n_heads)
        pictures.append(Picture(f"{part}-heads", f"Transformer: every head of the {part}'s self-attention", figure))
    return pictures
