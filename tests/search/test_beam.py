from __future__ import annotations

import itertools
import math

import pytest
import torch

from mtkit.data.batch import make_source
from mtkit.errors import MtkitError, RequestError
from mtkit.search import LengthPenalty, beam_search, greedy_search

PAD, UNK, BOS, EOS, A, B, C = range(7)


def search(model, sources=((A,),), limits=(10,), **options):
    src, src_pad_mask = make_source(sources)
    return beam_search(model, model.encode(src, src_pad_mask), torch.tensor(limits), **options)


def early_end(source, prefix):
    """The end is likely at once, but a longer hypothesis has the better mean."""
    return {(): {EOS: 0.5, A: 0.4, B: 0.1}, (A,): {EOS: 0.95, A: 0.05}}.get(prefix, {EOS: 0.5, A: 0.5})


def reference_beam(probabilities, source, limit, beam_size, length_penalty, n_best, coverage_beta=0.0):
    """Beam search as in the docstring of beam_search, for one sentence, with lists, and never stopping early."""

    def unseen(prefix):
        """Source words that the table never looks at; a word that it looks at gets a weight of 1 or more."""
        return set(range(len(source))) - {sum(prefix[:i]) % (len(source) + 1) for i in range(len(prefix) + 1)}

    beam, ended = [((), 0.0)], []
    for length in range(limit + 1):
        grown = []
        for prefix, log_prob in beam:
            for token, probability in probabilities(source, prefix).items():
                if token in (PAD, BOS, UNK) or (length == limit and token != EOS):
                    continue
                grown.append((log_prob + math.log(probability), prefix, token))
        grown = sorted(grown, reverse=True)[: 2 * beam_size if length < limit else None]
        ended += [
            (total / length_penalty(length + 1) + coverage_beta * len(unseen(prefix)) * math.log(1e-6), prefix, total)
            for total, prefix, last in grown
            if last == EOS
        ]
        beam = [(prefix + (last,), total) for total, prefix, last in grown if last != EOS][:beam_size]
    return sorted(ended, reverse=True)[:n_best]


def agree(found, expected):
    assert [tuple(each.tokens) for each in found] == [prefix for _, prefix, _ in expected]
    assert [each.score for each in found] == pytest.approx([score for score, _, _ in expected], abs=1e-5)
    assert [each.log_prob for each in found] == pytest.approx([log_prob for _, _, log_prob in expected], abs=1e-5)


@pytest.mark.parametrize("n_best", [1, 2])
@pytest.mark.parametrize(
    ("penalty", "tokens", "score"),
    [
        (LengthPenalty(1.0, "power"), [A], math.log(0.4 * 0.95) / 2),  # -0.484 beats -0.693
        (LengthPenalty(0.0, "power"), [], math.log(0.5)),  # -0.693 beats -0.968
        (LengthPenalty(1.0, "gnmt"), [], math.log(0.5)),  # -0.693 beats -0.829
    ],
)
def test_an_early_end_wins_only_by_its_score(table_model, penalty, tokens, score, n_best):
    best = search(table_model(early_end, 7), beam_size=2, length_penalty=penalty, n_best=n_best)[0][0]
    assert best.tokens == tokens
    assert best.score == pytest.approx(score)


def test_second_best_of_the_early_end_is_scored_by_the_same_formula(table_model):
    (found,) = search(table_model(early_end, 7), beam_size=2, length_penalty=LengthPenalty(1.0, "gnmt"), n_best=2)
    assert [each.tokens for each in found] == [[], [A]]
    assert found[1].score == pytest.approx(math.log(0.4 * 0.95) / (7 / 6))
    assert found[1].log_prob == pytest.approx(math.log(0.4 * 0.95))


def test_search_ends_when_nothing_alive_can_win(table_model):
    # After `A EOS` (0.9 x 0.9), the best alive has 0.1 and can reach at most log(0.1) / 11 = -0.209 a token;
    # log(0.81) / 2 = -0.105 is out of its reach, although it could go on for ten tokens.
    def probabilities(source, prefix):
        return {A: 0.9, B: 0.05, EOS: 0.05} if not prefix else {EOS: 0.9, A: 0.1}

    model = table_model(probabilities, 7)
    assert search(model, beam_size=2)[0][0].tokens == [A]
    assert len(model.seen) == 2


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0, 3.0])
@pytest.mark.parametrize("normalization", ["power", "gnmt"])
def test_a_full_width_beam_is_exhaustive_search(table_model, random_probabilities, alpha, normalization):
    penalty = LengthPenalty(alpha, normalization)
    for seed in range(5):
        probabilities = random_probabilities(seed, 6)
        scored = []
        for length in range(5):
            for tokens in itertools.product((A, B), repeat=length):
                steps = [(tokens[:i], token) for i, token in enumerate((*tokens, EOS))]
                log_prob = sum(math.log(probabilities((A,), prefix)[token]) for prefix, token in steps)
                scored.append((log_prob / penalty(length + 1), tokens, log_prob))
        (found,) = search(table_model(probabilities, 6), limits=(4,), beam_size=16, length_penalty=penalty, n_best=16)
        agree(found, sorted(scored, reverse=True)[:16])


@pytest.mark.parametrize("coverage_beta", [0.0, 0.02, 0.2])
@pytest.mark.parametrize("alpha", [0.0, 1.0, 2.0])
@pytest.mark.parametrize(("beam_size", "n_best"), [(2, 1), (2, 2), (3, 1), (5, 3)])
def test_stopping_and_narrowing_never_change_the_result(
    table_model, random_probabilities, alpha, beam_size, n_best, coverage_beta
):
    penalty = LengthPenalty(alpha)
    for seed in range(6):
        probabilities = random_probabilities(seed, 9, sharpness=1.0 + seed % 3)
        sources = [(A,), (B, A), (C, A, B)]
        limits = (7, 2, 5)
        options = {"beam_size": beam_size, "length_penalty": penalty, "n_best": n_best, "coverage_beta": coverage_beta}
        found = search(table_model(probabilities, 9), sources, limits, **options)
        for source, limit, hypotheses in zip(sources, limits, found, strict=True):
            agree(hypotheses, reference_beam(probabilities, source, limit, **options))


@pytest.mark.parametrize("alpha", [0.0, 1.0, 3.0])
def test_batch_mates_change_nothing(table_model, random_probabilities, alpha):
    probabilities = random_probabilities(3, 8, sharpness=1.5)
    sources = [tuple([A, B, C] * 4)[: 1 + i % 11] for i in range(9)]
    limits = [2 * len(source) for source in sources]
    options = {"beam_size": 3, "length_penalty": LengthPenalty(alpha), "n_best": 2, "need_attention": True}
    together = search(table_model(probabilities, 8), sources, limits, **options)
    backwards = search(table_model(probabilities, 8), sources[::-1], limits[::-1], **options)[::-1]
    for i, (source, limit) in enumerate(zip(sources, limits, strict=True)):
        (alone,) = search(table_model(probabilities, 8), [source], [limit], **options)
        for other in (together[i], backwards[i]):
            assert [each[:3] for each in other] == [each[:3] for each in alone]
            assert [each.attention.tolist() for each in other] == [each.attention.tolist() for each in alone]


def test_beam_1_is_greedy_search(table_model, random_probabilities):
    model = table_model(random_probabilities(1, 8), 8)
    src, src_pad_mask = make_source([(A,), (B, C), (C, C, A)])
    limits = torch.tensor([6, 4, 5])
    greedy = greedy_search(model, model.encode(src, src_pad_mask), limits, length_penalty=LengthPenalty(0.5))
    beam = beam_search(model, model.encode(src, src_pad_mask), limits, beam_size=1, length_penalty=LengthPenalty(0.5))
    assert beam == [[hypothesis] for hypothesis in greedy]


def test_the_same_text_has_the_same_score_in_greedy_and_beam_search(table_model):
    def certain(source, prefix):
        return {A: 0.9, EOS: 0.1} if len(prefix) < 3 else {EOS: 0.8, A: 0.2}

    model = table_model(certain, 6)
    (greedy,), (beam,) = search(model, beam_size=1), search(model, beam_size=4)
    assert beam[0].tokens == greedy[0].tokens == [A, A, A]
    assert beam[0].log_prob == pytest.approx(greedy[0].log_prob)
    assert beam[0].score == pytest.approx(greedy[0].score)
    assert beam[0].score < 0


def test_n_best_is_sorted_and_distinct_and_begins_with_the_best(table_model, random_probabilities):
    for seed in range(8):
        model = table_model(random_probabilities(seed, 9), 9)
        (five,) = search(model, limits=(6,), beam_size=5, n_best=5)
        (one,) = search(model, limits=(6,), beam_size=5, n_best=1)
        assert five[0] == one[0]
        assert [each.score for each in five] == sorted((each.score for each in five), reverse=True)
        assert len({tuple(each.tokens) for each in five}) == 5


def test_n_best_larger_than_the_beam_is_refused(table_model):
    with pytest.raises(RequestError, match="^n-best 10 needs a beam of at least 10, got 5$"):
        search(table_model(early_end, 7), beam_size=5, n_best=10)


def test_fewer_hypotheses_than_asked_come_back_when_there_are_no_more(table_model, random_probabilities):
    # One token at most, two to choose from: the empty translation, `A` and `B` are all there is.
    (found,) = search(table_model(random_probabilities(0, 6), 6), limits=(1,), beam_size=4, n_best=4)
    assert sorted(each.tokens for each in found) == [[], [A], [B]]


def test_longest_length_0_gives_the_empty_translation(table_model):
    (found,) = search(table_model(early_end, 7), limits=(0,), beam_size=3, n_best=3)
    assert [each.tokens for each in found] == [[]]
    assert found[0].log_prob == pytest.approx(math.log(0.5))


def test_an_unlikely_end_is_still_found_at_the_longest_length(table_model):
    """CH-120"""

    # EOS is the least likely of all tokens, far behind 2 x beam_size others.
    def endless(source, prefix):
        return {EOS: 0.001, **{token: 0.999 / 10 for token in range(4, 14)}}

    (found,) = search(table_model(endless, 14), limits=(3,), beam_size=2)
    assert len(found[0].tokens) == 3
    assert found[0].log_prob == pytest.approx(3 * math.log(0.0999) + math.log(0.001))


def test_forbidden_tokens_never_appear(table_model):
    def tempting(source, prefix):
        return {PAD: 0.3, BOS: 0.3, UNK: 0.2, A: 0.1, EOS: 0.1}

    for hypotheses in search(table_model(tempting, 6), limits=(4,), beam_size=5, n_best=5):
        assert len(hypotheses) == 5
        assert {token for each in hypotheses for token in each.tokens} == {A}
    (found,) = search(table_model(tempting, 6), limits=(2,), beam_size=3, allow_unknown=True)
    assert found[0].tokens == [UNK, UNK]


def test_memory_is_shared_by_the_beam_and_finished_sentences_leave(table_model):
    def echo(source, prefix):
        token = source[len(prefix)] if len(prefix) < len(source) else EOS
        return {**{other: 0.01 for other in range(3, 9)}, token: 0.95}

    model = table_model(echo, 9)
    sources = [(A,), (A, B, A, B, A, B), (B, B)]
    found = search(model, sources, (6, 6, 6), beam_size=4)
    assert [tuple(each[0].tokens) for each in found] == sources
    assert model.seen[0] == (3, 3)
    assert max(memory_rows for memory_rows, _ in model.seen) == 3
    assert model.seen[-1][0] == 1
    assert all(rows <= 4 * memory_rows for memory_rows, rows in model.seen)


def test_attention_follows_the_hypothesis(table_model, random_probabilities):
    sources, n_columns = [(A, B, C, A), (B,)], [5, 2]
    model = table_model(random_probabilities(2, 8), 8)
    found = search(model, sources, (4, 4), beam_size=4, n_best=4, need_attention=True)
    for hypotheses, columns in zip(found, n_columns, strict=True):
        assert len(hypotheses) == 4
        for each in hypotheses:
            looked_at = [sum(each.tokens[:step]) % columns for step in range(len(each.tokens) + 1)]
            assert each.attention.tolist() == torch.eye(columns)[looked_at].tolist()


def test_no_sentence_gives_no_translation(table_model):
    nothing = torch.zeros(0, 1, dtype=torch.int64)
    model = table_model(early_end, 7)
    found = beam_search(model, model.encode(nothing, nothing.bool()), nothing[:, 0], beam_size=2)
    assert found == []


@pytest.mark.parametrize("broken", [math.nan, 0.0])
def test_a_model_without_finite_numbers_is_an_error(table_model, broken):
    with pytest.raises(MtkitError, match="the model gives a log-probability of"):
        search(table_model(lambda source, prefix: {token: broken for token in range(6)}, 6), beam_size=2)


@pytest.mark.parametrize(("beta", "tokens"), [(0.0, [C]), (1.0, [A, B])])
def test_coverage_prefers_the_hypothesis_that_looks_at_every_word(table_model, beta, tokens):
    """Two source words and EOS; the table looks at column (sum of the prefix) mod 3, by hand:

    [C] looks at columns 0 and C % 3 = 0: the second word gets nothing, log(10^-6) = -13.8.
    [A, B] looks at 0, A % 3 = 1 and (A + B) % 3 = 0: both words have at least 1, no penalty.
    """

    def probabilities(source, prefix):
        return {(): {C: 0.6, A: 0.4}, (A,): {B: 0.9, EOS: 0.1}}.get(prefix, {EOS: 1.0})

    assert (A % 3, C % 3, (A + B) % 3) == (1, 0, 0)
    model = table_model(probabilities, 7)
    (found,) = search(model, [(A, A)], length_penalty=LengthPenalty(0.0), beam_size=3, n_best=2, coverage_beta=beta)
    assert found[0].tokens == tokens
    expected = {
        (C,): math.log(0.6) + beta * math.log(1e-6),
        (A, B): math.log(0.4 * 0.9),
        (A,): math.log(0.4 * 0.1),  # looks at columns 0 and 1
    }
    for each in found:
        assert each.score == pytest.approx(expected[tuple(each.tokens)], abs=1e-5)
        assert each.attention is None


def test_greedy_search_scores_coverage_too(table_model):
    model = table_model(lambda source, prefix: {EOS: 1.0} if prefix else {C: 1.0}, 7)
    (found,) = search(model, [(A, A)], length_penalty=LengthPenalty(0.0), beam_size=1, coverage_beta=0.5)
    assert found[0].score == pytest.approx(0.5 * math.log(1e-6))
