"""`mtkit bleu` as its users see it: output, hints, exit status."""

from __future__ import annotations

import bz2
import gzip
import json

import pytest
import sacrebleu
from typer.testing import CliRunner

from mtkit.cli import app

MAT = "the cat sat on the mat"
PARK = "a dog ran in the park"
SIGNATURE = f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{sacrebleu.__version__}"
PERFECT = "100.0/100.0/100.0/100.0 (BP = 1.000 ratio = 1.000"


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs `mtkit bleu` in a folder with the files given as bytes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SACREBLEU_SEED", raising=False)

    def run_in_folder(*arguments: str, stdin: bytes = b"", **files: bytes):
        for name, content in files.items():
            (tmp_path / name).write_bytes(content)
        return CliRunner().invoke(app, ["bleu", *arguments], input=stdin)

    return run_in_folder


def lines(*texts: str) -> bytes:
    return "".join(f"{text}\n" for text in texts).encode()


def test_one_system_prints_sacrebleus_line(run):
    result = run("hyp", "--ref", "ref", hyp=lines(MAT, PARK), ref=lines(MAT, PARK))
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == f"BLEU|{SIGNATURE} = 100.00 {PERFECT} hyp_len = 12 ref_len = 12)\n"


@pytest.mark.parametrize(
    ("options", "keys", "mark"),
    [
        (["--lowercase"], {"lowercase": True}, "case:lc"),
        (["--smooth", "floor"], {"smooth_method": "floor"}, "smooth:floor[0.10]"),
        (
            ["--smooth", "floor", "--smooth-value", "0.5"],
            {"smooth_method": "floor", "smooth_value": 0.5},
            "smooth:floor[0.50]",
        ),
        (["--max-order", "2"], {"max_ngram_order": 2}, ""),
        (["--tokenize", "char"], {"tokenize": "char"}, "tok:char"),
    ],
)
def test_options_of_bleu_are_sacrebleus(run, options, keys, mark):
    """One word in common in order, the rest in another case: each option changes the score."""
    text = "THE cat ON a mat"
    result = run("hyp", "--ref", "ref", *options, "--format", "json", hyp=lines(text), ref=lines(MAT))
    (score,) = json.loads(result.stdout)
    expected = sacrebleu.metrics.BLEU(**keys).corpus_score([text], [[MAT]]).score
    plain = sacrebleu.corpus_bleu([text], [[MAT]]).score
    assert score["score"] == pytest.approx(expected) and expected != pytest.approx(plain)
    assert mark in score["signature"]


def test_metrics_are_on_the_scale_of_one_hundred(run):
    result = run(
        "hyp", "--ref", "ref", "--metrics", "bleu,chrf,ter", "--format", "json", hyp=lines(MAT), ref=lines(MAT)
    )
    scores = json.loads(result.stdout)
    assert [(score["system"], score["name"]) for score in scores] == [("hyp", "BLEU"), ("hyp", "chrF2"), ("hyp", "TER")]
    assert [score["score"] for score in scores] == pytest.approx([100.0, 100.0, 0.0])
    assert scores[0]["signature"] == SIGNATURE
    assert (scores[0]["hyp_length"], scores[0]["ref_length"]) == (6, 6)


def test_standard_input_and_compressed_files(run):
    text = lines(MAT, PARK)
    result = run("-", "--ref", "ref.gz", "--ref", "ref.bz2", stdin=text, **{
        "ref.gz": gzip.compress(text), "ref.bz2": bz2.compress(text)
    })  # fmt: skip
    assert result.exit_code == 0
    assert result.stdout.startswith("BLEU|nrefs:2|")
    assert " = 100.00 " in result.stdout


def test_standard_input_is_read_only_once(run):
    result = run("-", "--ref", "-", stdin=lines(MAT))
    assert result.exit_code == 2
    assert result.stderr == "mtkit: -: standard input can be read only once; give the other text as a file\n"


def test_a_carriage_return_does_not_split_a_line(run):
    result = run("hyp", "--ref", "ref", hyp=lines(MAT), ref=b"the cat\rsat on the mat\n")
    assert result.exit_code == 0
    assert f" = 100.00 {PERFECT}" in result.stdout


def test_dos_line_ends_do_not_matter(run):
    result = run("hyp", "--ref", "ref", hyp=lines(MAT, PARK), ref=lines(MAT, PARK).replace(b"\n", b"\r\n"))
    assert f" = 100.00 {PERFECT}" in result.stdout


@pytest.mark.parametrize(
    ("hypotheses", "counts"), [((MAT, PARK, "xx yy zz"), "hyp has 3 lines"), ((MAT,), "hyp has 1 line")]
)
def test_different_counts_are_an_error_without_a_score(run, hypotheses, counts):
    result = run("hyp", "--ref", "ref", hyp=lines(*hypotheses), ref=lines(MAT, PARK))
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"mtkit: {counts}, ref has 2 lines; line N of each must be the same segment\n"


def test_a_missing_file_is_named(run):
    result = run("hyp", "--ref", "nowhere", hyp=lines(MAT))
    assert (result.exit_code, result.stdout) == (2, "")
    assert "nowhere" in result.stderr


def test_an_unknown_metric_is_named_before_files_are_read(run):
    result = run("nowhere", "--ref", "nowhere", "--metrics", "bleu,meteor")
    assert result.exit_code == 2
    assert (
        result.stderr
        == "mtkit: metrics: expected some of bleu, chrf, chrf++, ter, paper-bleu, paper-bleu-split; got 'meteor'\n"
    )


def test_smoothing_and_its_signature(run):
    files = {"hyp": lines("the dog bit a man today"), "ref": lines("the dog bit the man yesterday")}
    assert "smooth:exp|" in run("hyp", "--ref", "ref", **files).stdout
    assert " = 32.47 " in run("hyp", "--ref", "ref", **files).stdout
    assert " = 0.00 " in run("hyp", "--ref", "ref", "--smooth", "none", **files).stdout
    assert " = 21.71 " in run("hyp", "--ref", "ref", "--smooth", "floor", **files).stdout
    # Precisions 4/6, 2/5, 1/4 and, smoothed, 1/6.
    assert f" = {100 * (1 / 90) ** 0.25:.4f} " in run("hyp", "--ref", "ref", "--width", "4", **files).stdout


def test_chinese_scored_as_english_gets_a_warning_and_the_right_option_none(run):
    files = {"hyp": lines("我喜欢吃苹果。"), "ref": lines("我喜欢吃香蕉。")}
    wrong = run("hyp", "--ref", "ref", **files)
    assert " = 0.00 " in wrong.stdout
    assert wrong.stderr == (
        "mtkit: warning: ref: written without blanks between words, which tokenizer 13a takes for single words; "
        "use --tokenize zh\n"
    )
    for options in (["--trg-lang", "zh"], ["--tokenize", "zh"]):
        right = run("hyp", "--ref", "ref", *options, **files)
        assert (right.exit_code, right.stderr) == (0, "")
        assert "|tok:zh|" in right.stdout
        assert " = 43.47 " in right.stdout


def test_invalid_utf8_is_reported_and_scored(run):
    result = run("hyp", "--ref", "ref", hyp=lines(MAT, PARK), ref=lines(MAT) + b"a dog ran in the p\xffrk\n")
    assert result.exit_code == 0
    assert result.stderr == "mtkit: warning: ref:2: invalid UTF-8, replaced by U+FFFD (lines affected: 1)\n"


def test_several_systems_print_a_table_with_signatures(run):
    result = run("one", "two", "--ref", "ref", one=lines(MAT, PARK), two=lines("xx", "yy"), ref=lines(MAT, PARK))
    assert result.stdout.splitlines() == ["system  BLEU", "one     100.00", "two     0.00", "", f"BLEU|{SIGNATURE}"]


def test_paired_tests_print_p_values_and_mark_differences(run):
    files = {"one": lines(*["xx yy zz"] * 20), "two": lines(*[MAT] * 20), "ref": lines(*[MAT] * 20)}
    result = run("one", "two", "--ref", "ref", "--paired", "--samples", "50", **files)
    rows = result.stdout.splitlines()
    assert rows[1].split() == ["one", "0.00", "(μ", "=", "0.00", "±", "0.00)"]
    assert rows[2] == "two     100.00 (μ = 100.00 ± 0.00) (p = 0.0196)*"
    assert "p: chance of such a difference to one by luck alone; * is p < 0.05" in rows
    assert result.stderr == "mtkit: warning: a paired test on fewer than 50 segments tells little; there are 20\n"
    result = run(
        "one", "two", "--ref", "ref", "--paired-test", "approximate", "--samples", "50", "--format", "json", **files
    )
    baseline, system = json.loads(result.stdout)
    assert "p_value" not in baseline
    assert system["p_value"] == pytest.approx(1 / 51)
    assert system["baseline"] == "one"
    assert (system["brevity_penalty"], system["hyp_length"]) == (1.0, 120)


def test_a_paired_test_needs_two_systems(run):
    result = run("hyp", "--ref", "ref", "--paired", hyp=lines(MAT), ref=lines(MAT))
    assert result.exit_code == 2
    assert result.stderr == (
        "mtkit: a paired test compares systems: give two hypothesis files or more, the baseline first\n"
    )


def test_confidence_adds_an_interval(run):
    files = {"hyp": lines(MAT, PARK), "ref": lines(MAT, PARK)}
    result = run("hyp", "--ref", "ref", "--confidence", **files)
    assert "|bs:1000|seed:12345|" in result.stdout
    assert " = 100.00 (μ = 100.00 ± 0.00) " in result.stdout
    (score,) = json.loads(run("hyp", "--ref", "ref", "--confidence", "--format", "json", **files).stdout)
    assert score["confidence_mean"] == pytest.approx(100.0)
    assert score["confidence_half_width"] == pytest.approx(0.0, abs=1e-9)


def test_samples_without_sampling_are_refused(run):
    result = run("hyp", "--ref", "ref", "--samples", "50", hyp=lines(MAT), ref=lines(MAT))
    assert result.exit_code == 2
    assert result.stderr == "mtkit: --samples: only --confidence and --paired draw samples; add one of them\n"


def test_confidence_reaches_the_groups_of_lengths(run):
    files = {"hyp": lines(MAT, MAT, "xx yy"), "ref": lines(MAT, PARK, PARK), "src": lines("a", "b", "c")}
    command = ("hyp", "--ref", "ref", "--by-length", "src", "--confidence", "--samples", "20")
    (score,) = json.loads(run(*command, "--format", "json", **files).stdout)
    group = score["by_length"][0]
    assert group["bleu"] == pytest.approx(score["score"])
    assert group["confidence_half_width"] == pytest.approx(score["confidence_half_width"])
    shown = run(*command, **files).stdout.splitlines()[4].split()
    assert shown[3] == "±" and float(shown[4]) == pytest.approx(group["confidence_half_width"], abs=0.005)
    assert "confidence_half_width" not in score["by_length"][1], "a group without segments has no interval"


def test_by_length_shows_scores_and_counts(run):
    files = {"hyp": lines(MAT, "xx yy"), "ref": lines(MAT, PARK), "src": lines("ein wort", "w " * 12)}
    result = run("hyp", "--ref", "ref", "--by-length", "src", **files)
    rows = [row.split() for row in result.stdout.splitlines()]
    assert rows[3] == ["words", "segments", "BLEU"]
    assert rows[4] == ["1-9", "1", "100.00"]
    assert rows[5] == ["10-19", "1", "0.00"]
    assert rows[6] == ["20-29", "0", "-"]
    (score,) = json.loads(run("hyp", "--ref", "ref", "--by-length", "src", "--format", "json", **files).stdout)
    assert score["by_length"][0] == {"words": "1-9", "n_segments": 1, "bleu": pytest.approx(100.0)}
    assert score["by_length"][-1] == {"words": "60+", "n_segments": 0, "bleu": None}


def test_by_length_without_bleu_is_refused(run):
    result = run("hyp", "--ref", "ref", "--by-length", "src", "--metrics", "chrf")
    assert result.exit_code == 2
    assert result.stderr == "mtkit: --by-length: it gives BLEU; add bleu to --metrics\n"
