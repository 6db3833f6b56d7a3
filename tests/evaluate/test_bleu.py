"""Scores against values worked out by hand or printed by sacreBLEU's own command."""

from __future__ import annotations

import math
import unicodedata

import pytest
import sacrebleu

from mtkit.errors import RequestError
from mtkit.evaluate.bleu import (
    LengthBucket,
    NamedLines,
    ScoreSettings,
    bleu_by_length,
    check_settings,
    corpus_scores,
    hints,
    paired_scores,
    system_scores,
)

MAT = "the cat sat on the mat"
PARK = "a dog ran in the park"
MAN = "the dog bit a man today"
MAN_REFERENCE = "the dog bit the man yesterday"


def bleu(hypothesis: str, *references: str, **options) -> float:
    (score,) = corpus_scores([hypothesis], [[reference] for reference in references], **options)
    return score.score


def test_a_carriage_return_inside_a_line_is_white_space():
    assert bleu(MAT, "the cat\rsat on the mat") == pytest.approx(100.0)


def test_decomposed_letters_are_not_composed_letters():
    text = "le café est très bon ici"
    decomposed = unicodedata.normalize("NFD", text)
    assert bleu(decomposed, unicodedata.normalize("NFC", text)) == pytest.approx(19.30, abs=0.005)


@pytest.mark.parametrize("metric", ["bleu", "chrf", "chrf++", "ter"])
@pytest.mark.parametrize(
    ("hypotheses", "message"),
    [
        ([MAT, PARK, "xx yy zz"], "out.txt has 3 lines, ref.txt has 2 lines; line N of each must be the same segment"),
        ([MAT], "out.txt has 1 line, ref.txt has 2 lines; line N of each must be the same segment"),
    ],
)
def test_different_counts_are_refused_with_both_counts_and_names(hypotheses, message, metric):
    with pytest.raises(RequestError) as caught:
        system_scores(
            [NamedLines("out.txt", hypotheses)],
            [NamedLines("ref.txt", [MAT, PARK])],
            ScoreSettings(metrics=[metric]),
        )
    assert str(caught.value) == message


def test_the_second_reference_is_counted_too():
    with pytest.raises(RequestError, match="hypotheses has 1 line, reference 2 has 2 lines"):
        corpus_scores([MAT], [[MAT], [MAT, PARK]])


def test_no_segment_and_no_reference_are_refused():
    with pytest.raises(RequestError, match="hypotheses: no lines, nothing to score"):
        corpus_scores([], [[]])
    with pytest.raises(RequestError, match="no reference given"):
        corpus_scores([MAT], [])


def test_a_flat_list_of_references_is_refused():
    with pytest.raises(TypeError, match="list of reference files"):
        corpus_scores([MAT], [MAT])


def test_a_perfect_text_too_short_for_four_grams_has_zero_and_the_signature_says_why():
    (score,) = corpus_scores(["hello world"], [["hello world"]])
    assert score.score == 0.0
    assert "|eff:no|" in score.signature


def test_no_common_word_gives_no_points():
    assert bleu("yes", "no") == 0.0


@pytest.mark.parametrize(
    ("smooth_method", "expected", "in_signature"),
    [("exp", 32.47, "smooth:exp"), ("none", 0.0, "smooth:none"), ("floor", 21.71, "smooth:floor[0.10]")],
)
def test_smoothing_changes_the_score_and_the_signature(smooth_method, expected, in_signature):
    (score,) = corpus_scores([MAN], [[MAN_REFERENCE]], smooth_method=smooth_method)
    assert score.score == pytest.approx(expected, abs=0.005)
    assert f"|{in_signature}|" in score.signature


def test_smoothing_value_is_the_one_given():
    # Precisions 4/6, 2/5, 1/4 and, smoothed, 0.5/3; both sides have six words.
    expected = 100 * (4 / 6 * 2 / 5 * 1 / 4 * 0.5 / 3) ** 0.25
    (score,) = corpus_scores([MAN], [[MAN_REFERENCE]], smooth_method="floor", smooth_value=0.5)
    assert score.score == pytest.approx(expected)
    assert "smooth:floor[0.50]" in score.signature


def test_the_default_signature_is_sacrebleus():
    (score,) = corpus_scores([MAN], [[MAN_REFERENCE]])
    assert score.name == "BLEU"
    assert score.signature == f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{sacrebleu.__version__}"


def test_details_show_precisions_brevity_penalty_and_lengths():
    # Five of six words, all of them in order: precisions 1, brevity penalty exp(1 - 6/5).
    (score,) = corpus_scores(["the cat sat on the"], [[MAT]])
    assert score.bleu is not None
    assert score.bleu.precisions == pytest.approx((100.0,) * 4)
    assert score.bleu.brevity_penalty == pytest.approx(math.exp(-0.2))
    assert (score.bleu.hyp_length, score.bleu.ref_length) == (5, 6)
    assert score.details == "100.0/100.0/100.0/100.0 (BP = 0.819 ratio = 0.833 hyp_len = 5 ref_len = 6)"
    assert score.score == pytest.approx(100 * math.exp(-0.2))


def test_lower_n_gram_order_shows_in_the_name():
    # Unigrams 4/6, bigrams 2/5: the signature of sacreBLEU is the same, so the name has to tell.
    (score,) = corpus_scores([MAN], [[MAN_REFERENCE]], max_ngram_order=2)
    assert score.name == "BLEU (order 2)"
    assert score.score == pytest.approx(100 * math.sqrt(4 / 6 * 2 / 5))


def test_equal_references_count_twice_in_the_signature_alone():
    (one,) = corpus_scores([MAN], [[MAN_REFERENCE]])
    (two,) = corpus_scores([MAN], [[MAN_REFERENCE], [MAN_REFERENCE]])
    assert one.score == two.score
    assert one.signature.startswith("nrefs:1|")
    assert two.signature.startswith("nrefs:2|")


@pytest.mark.parametrize("lengths", [(4, 8), (8, 4)])
def test_of_two_equally_close_references_the_shorter_counts(lengths):
    references = [[" ".join(["word"] * length)] for length in lengths]
    (score,) = corpus_scores([" ".join(["word"] * 6)], references)
    assert score.bleu is not None
    assert score.bleu.ref_length == 4


def test_every_metric_is_on_the_scale_of_one_hundred():
    scores = corpus_scores([MAT, PARK], [[MAT, PARK]], metrics=["bleu", "chrf", "chrf++", "ter"])
    assert [score.name for score in scores] == ["BLEU", "chrF2", "chrF2++", "TER"]
    assert [score.score for score in scores] == pytest.approx([100.0, 100.0, 100.0, 0.0])
    assert all(score.signature.endswith(f"version:{sacrebleu.__version__}") for score in scores)


def test_ter_counts_edits_by_reference_words():
    (score,) = corpus_scores(["the cat sat on a mat"], [[MAT]], metrics=["ter"])
    assert score.score == pytest.approx(100 / 6)
    assert score.details == "(edits = 1 ref_len = 6.0)"


def test_lowercase_ignores_case_in_bleu_and_chrf():
    scores = corpus_scores([MAT.upper()], [[MAT]], metrics=["bleu", "chrf"], lowercase=True)
    assert [score.score for score in scores] == pytest.approx([100.0, 100.0])
    assert all("|case:lc|" in score.signature for score in scores)
    assert bleu(MAT.upper(), MAT) == 0.0


def test_metrics_may_be_named_twice_and_in_capitals():
    assert [score.name for score in corpus_scores([MAT], [[MAT]], metrics=["chrF", "BLEU", "bleu"])] == [
        "chrF2",
        "BLEU",
    ]


CHINESE, CHINESE_REFERENCE = "我喜欢吃苹果。", "我喜欢吃香蕉。"


def test_chinese_needs_its_own_tokenizer():
    assert bleu(CHINESE, CHINESE_REFERENCE, tokenize="zh") == pytest.approx(43.47, abs=0.005)
    assert bleu(CHINESE, CHINESE_REFERENCE, tokenize="13a") == 0.0


@pytest.mark.parametrize("trg_lang", ["zh", "zh-TW", "zh_CN", "zho", "ZH"])
def test_the_target_language_chooses_the_tokenizer(trg_lang):
    (score,) = corpus_scores([CHINESE], [[CHINESE_REFERENCE]], trg_lang=trg_lang)
    assert score.score == pytest.approx(43.47, abs=0.005)
    assert "|tok:zh|" in score.signature


def test_a_tokenizer_asked_for_beats_the_language():
    (score,) = corpus_scores([CHINESE], [[CHINESE_REFERENCE]], trg_lang="zh", tokenize="char")
    assert "|tok:char|" in score.signature


@pytest.mark.parametrize(("trg_lang", "module"), [("ja", "tokenizer_ja_mecab"), ("ko", "tokenizer_ko_mecab")])
def test_a_missing_package_is_named(monkeypatch, trg_lang, module):
    monkeypatch.setattr(f"sacrebleu.tokenizers.{module}.MeCab", None)
    with pytest.raises(RequestError) as caught:
        corpus_scores(["a"], [["a"]], trg_lang=trg_lang)
    assert str(caught.value) == (
        f"tokenizer {trg_lang}-mecab: cannot be used here; it needs: pip install 'sacrebleu[{trg_lang}]'"
    )


def test_a_failed_download_is_a_request_error(monkeypatch, tmp_path):
    def fail(*_arguments):
        raise OSError("no connection")

    monkeypatch.setattr("sacrebleu.tokenizers.tokenizer_spm.SACREBLEU_DIR", str(tmp_path))
    monkeypatch.setattr("sacrebleu.tokenizers.tokenizer_spm.download_file", fail)
    with pytest.raises(
        RequestError, match=r"tokenizer flores200: cannot be used here \(no connection\); it needs: pip"
    ):
        corpus_scores(["a"], [["a"]], tokenize="flores200")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            ScoreSettings(metrics=["bleau"]),
            "metrics: expected some of bleu, chrf, chrf++, ter, paper-bleu, paper-bleu-split; got 'bleau'",
        ),
        (
            ScoreSettings(metrics=[]),
            "metrics: expected some of bleu, chrf, chrf++, ter, paper-bleu, paper-bleu-split; got none",
        ),
        (ScoreSettings(smooth_method="lin"), "smoothing: expected one of exp, floor, add-k, none; got 'lin'"),
        (ScoreSettings(smooth_value=0.1), "smoothing value: only floor and add-k take one, not exp"),
        (
            ScoreSettings(smooth_method="floor", smooth_value=0.0),
            "smoothing value: expected a number above 0; got 0.0",
        ),
        (ScoreSettings(max_ngram_order=0), "n-gram order: expected 1 or more; got 0"),
    ],
)
def test_wrong_settings_are_named_before_any_text_is_read(settings, message):
    with pytest.raises(RequestError) as caught:
        check_settings(settings)
    assert str(caught.value) == message


def test_an_unknown_tokenizer_is_refused_with_the_choice():
    with pytest.raises(RequestError, match=r"^tokenize: expected one of none, zh, 13a, .*; got '13b'$"):
        check_settings(ScoreSettings(tokenize="13b"))


def test_what_bleu_alone_has_is_refused_without_it():
    """A test without its settings would be reported as one with them."""
    for keys in ({"tokenize": "zh"}, {"smooth_method": "floor"}, {"smooth_value": 0.1}, {"max_ngram_order": 2}):
        with pytest.raises(RequestError, match="is a setting of bleu; the metrics are paper-bleu, ter"):
            check_settings(ScoreSettings(metrics=["paper-bleu", "ter"], **keys))


def test_a_seed_that_is_none_is_named(monkeypatch):
    monkeypatch.setenv("SACREBLEU_SEED", "abc")
    with pytest.raises(RequestError, match="^SACREBLEU_SEED: expected a whole number or none, got 'abc'$"):
        check_settings(ScoreSettings())
    monkeypatch.setenv("SACREBLEU_SEED", "None")
    check_settings(ScoreSettings())


def test_every_resample_of_a_perfect_text_is_perfect(monkeypatch):
    monkeypatch.delenv("SACREBLEU_SEED", raising=False)
    (score,) = corpus_scores([MAT, PARK], [[MAT, PARK]], n_bootstrap=50)
    assert score.interval is not None
    assert score.interval.mean == pytest.approx(100.0)
    assert score.interval.half_width == pytest.approx(0.0, abs=1e-9)
    assert "|bs:50|seed:12345|" in score.signature


def test_the_interval_of_a_mixed_text_is_repeatable_and_has_a_width():
    hypotheses, references = [MAT, PARK, MAN] * 5, [[MAT, PARK, MAN_REFERENCE] * 5]
    first, second = (corpus_scores(hypotheses, references, n_bootstrap=100)[0].interval for _ in range(2))
    assert first is not None
    assert first == second
    assert 0 < first.half_width < 50
    assert corpus_scores(hypotheses, references)[0].interval is None


@pytest.mark.parametrize("metric", ["bleu", "chrf", "chrf++", "ter", "paper-bleu"])
def test_an_interval_is_found_where_some_resamples_have_no_match(metric):
    (score,) = corpus_scores(["1 2", "", "2", "3 3"], [["1 2 3 1", "", "2 3", "3"]], metrics=[metric], n_bootstrap=100)
    assert score.interval is not None and score.interval.half_width >= 0


@pytest.mark.parametrize("method", ["bootstrap", "approximate"])
def test_paired_tests_tell_a_perfect_system_from_a_useless_one(method):
    # No resample or shuffle shows more than the real difference of 100, so only the observed one counts: 1 of 51.
    references = [NamedLines("ref", [MAT, PARK] * 10)]
    systems = [NamedLines("useless", ["xx yy zz ww vv"] * 20), NamedLines("perfect", [MAT, PARK] * 10)]
    (useless,), (perfect,) = paired_scores(systems, references, ScoreSettings(), method=method, n_samples=50)
    assert (useless.score, useless.p_value) == (0.0, None)
    assert perfect.score == pytest.approx(100.0)
    assert perfect.p_value == pytest.approx(1 / 51)
    assert f"|{'bs' if method == 'bootstrap' else 'ar'}:50|" in perfect.signature


@pytest.mark.parametrize("method", ["bootstrap", "approximate"])
def test_a_system_does_not_differ_from_itself(method):
    references = [NamedLines("ref", [MAT, PARK, MAN_REFERENCE])]
    system = NamedLines("same", [MAT, PARK, MAN])
    settings = ScoreSettings(metrics=["bleu", "chrf"])
    _, scores = paired_scores([system, system], references, settings, method=method, n_samples=50)
    assert [score.p_value for score in scores] == [1.0, 1.0]


def test_a_single_segment_shows_no_difference():
    """Each sample of one segment is that segment: sacreBLEU would print the smallest p-value there is."""
    references, systems = [NamedLines("ref", [MAT])], [NamedLines("bad", ["xx yy"]), NamedLines("good", [MAT])]
    for method in ("bootstrap", "approximate"):
        _, (good,) = paired_scores(systems, references, ScoreSettings(), method=method, n_samples=50)
        assert good.p_value == 1.0


def test_paired_scores_equal_the_single_scores():
    references = [NamedLines("ref", [MAT, PARK, MAN_REFERENCE])]
    systems = [NamedLines("a", [MAT, PARK, MAN]), NamedLines("b", [MAN, PARK, MAN])]
    settings = ScoreSettings(metrics=["bleu", "chrf++", "ter"])
    paired = paired_scores(systems, references, settings, method="approximate", n_samples=20, n_bootstrap=20)
    single = system_scores(systems, references, settings)
    for paired_row, single_row in zip(paired, single, strict=True):
        assert [score.name for score in paired_row] == [score.name for score in single_row]
        assert [score.score for score in paired_row] == pytest.approx([score.score for score in single_row])
        assert [(score.details, score.bleu) for score in paired_row] == [
            (score.details, score.bleu) for score in single_row
        ]
        assert all(score.interval is not None for score in paired_row)


def test_a_paired_test_needs_two_systems_of_the_right_size():
    one = NamedLines("a", [MAT])
    with pytest.raises(RequestError, match="two hypothesis files or more"):
        paired_scores([one], [one], ScoreSettings(), method="bootstrap")
    with pytest.raises(RequestError, match="b has 2 lines, a has 1 line"):
        paired_scores([one, NamedLines("b", [MAT, PARK])], [one], ScoreSettings(), method="bootstrap")


def test_bleu_by_length_puts_every_segment_in_the_bucket_of_its_source():
    lengths = [1, 9, 10, 19, 59, 60, 200]
    source = NamedLines("src", [" ".join(["w"] * length) for length in lengths])
    good, bad = MAT, "xx yy zz ww"
    system = NamedLines("hyp", [good, good, bad, bad, good, bad, good])
    references = [NamedLines("ref", [MAT] * len(lengths))]
    buckets = bleu_by_length(system, references, source, ScoreSettings())
    assert [bucket.words for bucket in buckets] == ["1-9", "10-19", "20-29", "30-39", "40-49", "50-59", "60+"]
    assert [bucket.n_segments for bucket in buckets] == [2, 2, 0, 0, 0, 1, 2]
    assert buckets[0].bleu == pytest.approx(100.0)
    assert buckets[1].bleu == 0.0
    assert buckets[2].bleu is None
    assert buckets[5].bleu == pytest.approx(100.0)
    # The last bucket pools its segments: 6 of 10 words match, 5 of 8, 4 of 6, 3 of 4; 10 words against 12.
    assert buckets[6].bleu == pytest.approx(100 * math.exp(1 - 12 / 10) * (6 / 10 * 5 / 8 * 4 / 6 * 3 / 4) ** 0.25)


def test_bleu_by_length_counts_empty_sources_apart():
    source = NamedLines("src", ["", "a word"])
    system = NamedLines("hyp", [MAT, MAT])
    buckets = bleu_by_length(system, [NamedLines("ref", [MAT, MAT])], source, ScoreSettings())
    assert buckets[0] == LengthBucket("0", 1, pytest.approx(100.0))
    assert sum(bucket.n_segments for bucket in buckets) == 2


def test_bleu_by_length_counts_the_source_lines():
    with pytest.raises(RequestError, match="hyp has 1 line, src has 2 lines"):
        bleu_by_length(
            NamedLines("hyp", [MAT]), [NamedLines("ref", [MAT])], NamedLines("src", ["a", "b"]), ScoreSettings()
        )


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("the c@@ at sat on the m@@ at", "hyp: 1 of 1 line with pieces marked @@; join them before scoring"),
        ("▁the ▁ca t", "hyp: 1 of 1 line with pieces marked ▁ (U+2581); decode them before scoring"),
        (
            "the cat sat on the mat .",
            "hyp: 1 of 1 line with stops set off by a blank, so it looks tokenised; detokenise it before scoring",
        ),
    ],
)
def test_text_still_in_pieces_gets_a_hint(line, expected):
    assert hints([NamedLines("hyp", [line])], [NamedLines("ref", [MAT])], ScoreSettings()) == [expected]


def test_a_reference_still_in_pieces_gets_a_hint_too():
    (hint,) = hints([NamedLines("hyp", ["a cat."])], [NamedLines("ref", ["a cat ."])], ScoreSettings())
    assert hint.startswith("ref: 1 of 1 line with stops set off by a blank")


def test_clean_text_with_one_odd_line_gets_no_hint():
    lines = ["The cat sat on the mat."] * 19
    system = NamedLines("hyp", [*lines, "An odd one ."])
    assert hints([system], [NamedLines("ref", [*lines, "我"])], ScoreSettings(metrics=["bleu", "ter"])) == []


@pytest.mark.parametrize(
    ("reference", "fitting"), [(CHINESE, "zh"), ("私はりんごが好きです。", "ja-mecab"), ("ฉันชอบกินแอปเปิล", "flores200")]
)
def test_text_without_blanks_gets_a_hint_of_the_tokenizer_that_fits(reference, fitting):
    references = [NamedLines("ref", [reference])]
    (hint,) = hints([NamedLines("hyp", [reference])], references, ScoreSettings())
    assert hint.startswith("ref: written without blanks between words, which tokenizer 13a takes for single words")
    assert hint.endswith(f"use --tokenize {fitting}")
    assert hints([NamedLines("hyp", [reference])], references, ScoreSettings(tokenize="char")) == []


def test_a_source_without_blanks_gets_a_hint_when_its_words_are_counted():
    texts = [NamedLines("hyp", [MAT])], [NamedLines("ref", [MAT])], ScoreSettings()
    assert hints(*texts, NamedLines("src", [MAT])) == []
    (hint,) = hints(*texts, NamedLines("src", [CHINESE]))
    assert hint == "src: written without blanks between words, so its lines have few words to count"


def test_paper_bleu_is_unsmoothed_bleu_of_moses_tokens() -> None:
    """Moses cuts l'homme behind its apostrophe and quotes off their word; 13a, sacreBLEU's default, does not."""
    hypotheses = ["L'homme est «bien» ici, n'est-ce pas?", "Elle a dit: «oui, merci beaucoup»."]
    references = ["L'homme est «bien» là, n'est-ce pas?", "Elle a dit: «non, merci beaucoup»."]
    cut = [
        ["L' homme est « bien » ici , n' est-ce pas ?", "Elle a dit : « oui , merci beaucoup » ."],
        ["L' homme est « bien » là , n' est-ce pas ?", "Elle a dit : « non , merci beaucoup » ."],
    ]
    expected = sacrebleu.corpus_bleu(cut[0], [cut[1]], tokenize="none", smooth_method="none", force=True).score
    (found,) = corpus_scores(hypotheses, [references], metrics=["paper-bleu"], trg_lang="fr")
    assert found.name == "paper BLEU"
    assert found.score == pytest.approx(expected)
    assert "tok:moses-fr" in found.signature and "smooth:none" in found.signature
    assert found.score != pytest.approx(corpus_scores(hypotheses, [references])[0].score)


def test_compounds_are_split_where_that_is_asked() -> None:
    """`well-known` becomes three tokens, as in Vaswani et al. (2017), and in no other paper BLEU."""
    hypotheses, references = ["A well-known man is here now."], ["A well-known person is here now."]
    cut = ["A well ##AT##-##AT## known man is here now .", "A well ##AT##-##AT## known person is here now ."]
    expected = sacrebleu.corpus_bleu([cut[0]], [[cut[1]]], tokenize="none", smooth_method="none", force=True).score
    whole, split = corpus_scores(hypotheses, [references], metrics=["paper-bleu", "paper-bleu-split"], trg_lang="en")
    assert split.name == "paper BLEU (compounds split)"
    assert split.score == pytest.approx(expected)
    assert "tok:moses-en-split" in split.signature
    assert whole.bleu is not None and split.bleu is not None
    assert split.bleu.hyp_length == whole.bleu.hyp_length + 2


def test_paper_bleu_stands_beside_bleu_in_a_paired_test() -> None:
    systems = [NamedLines("a", ["a b c d e"] * 4), NamedLines("b", ["a b c d f"] * 4)]
    settings = ScoreSettings(metrics=["bleu", "paper-bleu"])
    found = paired_scores(systems, [NamedLines("r", ["a b c d e"] * 4)], settings, method="bootstrap", n_samples=10)
    assert [[score.name for score in row] for row in found] == [["BLEU", "paper BLEU"]] * 2


def test_intervals_of_length_groups_are_those_of_their_segments() -> None:
    hypotheses = ["a b c d x", "a b c d e"] * 5 + ["a b c d e f g h i j k l"] * 3
    references = ["a b c d e"] * 10 + ["a b c d e f g h i j k m"] * 3
    source = NamedLines("source", references)
    arguments = (NamedLines("s", hypotheses), [NamedLines("r", references)], source, ScoreSettings())
    short, long = (bucket for bucket in bleu_by_length(*arguments, n_bootstrap=100) if bucket.n_segments)
    expected = corpus_scores(hypotheses[:10], [references[:10]], n_bootstrap=100)[0].interval
    assert short.interval == expected
    assert long.interval is not None
    assert all(bucket.interval is None for bucket in bleu_by_length(*arguments))
