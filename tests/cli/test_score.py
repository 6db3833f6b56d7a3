"""mtkit score, and ensembles in mtkit translate, on real runs of tiny models."""

from __future__ import annotations

import gzip
import json
import math
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from mtkit.checkpoint import checkpoints_folder, read_state, read_tensors, save_checkpoint
from mtkit.cli import app
from mtkit.text.tokenizer import UNK_ID

MakeRun = Callable[..., Path]
SOURCES, TARGETS = ["the dog", "", "a man sees"], ["a man", "the", ""]


@pytest.fixture(scope="module")
def runs(make_run: MakeRun, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for backend in ("rnnsearch", "transformer", "seq2seq"):
        make_run(folder, backend)
    (folder / "other").mkdir()
    make_run(folder / "other", "seq2seq", ["eins zwei drei vier"] * 2)
    for name, lines in (("src", SOURCES), ("trg", TARGETS)):
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return folder


def run(*arguments: object, stdin: bytes = b"") -> Result:
    return CliRunner().invoke(app, [*map(str, arguments), "--device", "cpu"], input=stdin)


def test_a_pair_is_a_line_and_its_tokens_add_up(runs: Path) -> None:
    text = run("score", runs / "rnnsearch", runs / "src", runs / "trg").stdout.splitlines()
    full = [json.loads(line) for line in _jsonl(runs)]
    assert len(text) == len(full) == 3
    for line, each, target in zip(text, full, TARGETS, strict=True):
        assert float(line) == pytest.approx(each["log_prob"], abs=1e-4)
        assert sum(each["token_log_probs"]) == pytest.approx(each["log_prob"], abs=1e-3)
        assert len(each["tokens"]) == len(target.split()) + 1
        assert each["ppl"] == pytest.approx(math.exp(-each["log_prob"] / len(each["tokens"])), rel=1e-3)
        assert each["translation"] == target


def _jsonl(runs: Path) -> list[str]:
    return run("score", runs / "rnnsearch", runs / "src", runs / "trg", "--format", "jsonl").stdout.splitlines()


def test_the_pairs_of_an_alignment_are_those_of_the_given_text(runs: Path) -> None:
    lines = run("score", runs / "rnnsearch", runs / "src", runs / "trg", "--alignments").stdout.splitlines()
    assert [pair.split("-")[1] for pair in lines[0].split(" ||| ")[1].split()] == ["0", "1"]
    assert lines[2].endswith(" ||| "), "an empty translation has no pairs"


def test_an_n_best_list_gets_its_own_scores_back(runs: Path, tmp_path: Path) -> None:
    """CH-17"""
    sources = tmp_path / "src"
    sources.write_text("the dog\na man sees\n", encoding="utf-8")
    found = run("translate", runs / "rnnsearch", sources, "--beam", 4, "--n-best", 2, "--format", "tsv")
    columns = [line.split("\t") for line in found.stdout.splitlines()]
    (tmp_path / "list").write_text("".join(f"{text}\n" for text, _ in columns), encoding="utf-8")
    scored = run("score", runs / "rnnsearch", sources, tmp_path / "list", "--n-best", 2, "--format", "tsv")
    again = [line.split("\t")[1] for line in scored.stdout.splitlines()]
    assert [float(score) for score in again] == pytest.approx([float(score) for _, score in columns], abs=2e-4)


@pytest.mark.parametrize("per_line", [1, 2])
def test_a_text_of_several_blocks_is_scored_as_one_of_one_block(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, per_line: int
) -> None:
    """Two lines a block; the source that is cut is in the third of them."""
    sources = ["the dog", "a man", "sees", "the", "man " * 1025]
    targets = [f"a man {'the ' * number}" for number in range(per_line * len(sources))]
    for name, lines in (("src", sources), ("trg", targets)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    arguments = ("score", runs / "rnnsearch", tmp_path / "src", tmp_path / "trg", "--n-best", per_line)
    whole = run(*arguments)
    monkeypatch.setattr("mtkit.cli.score.BLOCK_LINES", 2)
    found = run(*arguments)
    assert found.exit_code == whole.exit_code == 0
    scores = [[float(line) for line in result.stdout.splitlines()] for result in (whole, found)]
    assert len(set(scores[0])) == len(targets)
    assert scores[1] == pytest.approx(scores[0], abs=2e-4)
    assert found.stderr == whole.stderr
    assert f"mtkit: warning: {tmp_path / 'src'}: line 5: 1025 tokens, cut to the first " in found.stderr


@pytest.mark.parametrize("command", ["score", "translate"])
def test_precision_is_that_of_the_products(runs: Path, command: str) -> None:
    texts = (runs / "src", runs / "trg") if command == "score" else (runs / "src",)
    arguments = (command, runs / "transformer", *texts, "--format", "jsonl")
    plain, single, half = (
        [json.loads(line)["log_prob"] for line in run(*arguments, *more).stdout.splitlines()]
        for more in ((), ("--precision", "fp32"), ("--precision", "bf16"))
    )
    assert plain == single
    assert half != single, "rounded to eight bits"
    if command == "score":
        assert half == pytest.approx(single, rel=0.02, abs=0.03)


def test_a_length_penalty_for_a_format_without_the_score_is_refused(runs: Path) -> None:
    result = run("score", runs / "rnnsearch", "-", "-", "--length-penalty", 0.6)
    assert (result.exit_code, result.stderr) == (
        2,
        "mtkit: --length-penalty: shapes the score, which --format tsv and jsonl give\n",
    )


def test_unequal_files_are_refused_with_both_counts(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "two").write_text("a\nb\n", encoding="utf-8")
    result = run("score", runs / "rnnsearch", runs / "src", tmp_path / "two")
    assert result.exit_code == 2
    assert result.stderr == f"mtkit: {runs / 'src'} has 3 lines and {tmp_path / 'two'} 2; they must be aligned\n"


def test_texts_may_be_compressed_or_come_through_a_pipe(runs: Path, tmp_path: Path) -> None:
    packed = tmp_path / "trg.gz"
    packed.write_bytes(gzip.compress((runs / "trg").read_bytes()))
    expected = run("score", runs / "rnnsearch", runs / "src", runs / "trg").stdout
    assert expected
    assert run("score", runs / "rnnsearch", runs / "src", packed).stdout == expected
    assert run("score", runs / "rnnsearch", runs / "src", "-", stdin=(runs / "trg").read_bytes()).stdout == expected
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes((runs / "trg").read_bytes()), daemon=True)
    writer.start()
    assert run("score", runs / "rnnsearch", runs / "src", pipe).stdout == expected
    writer.join()


def test_invalid_utf8_is_reported_once(runs: Path, tmp_path: Path) -> None:
    for name, stdin in ((tmp_path / "bad", b""), ("-", b"a\nthe\xff\n\n")):
        (tmp_path / "bad").write_bytes(b"a\nthe\xff\n\n")
        result = run("score", runs / "rnnsearch", runs / "src", name, stdin=stdin)
        shown = "<stdin>" if name == "-" else name
        assert result.exit_code == 0
        assert result.stderr == f"mtkit: warning: {shown}:2: invalid UTF-8, replaced by U+FFFD\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rnnsearch", "src", "nosuch"], "nosuch: no such file"),
        (["rnnsearch", "-", "-"], "-: standard input can be read only once; give the other text as a file"),
        (["seq2seq", "src", "trg", "--alignments"], "alignments need a model with attention; this one has none"),
    ],
)
def test_what_cannot_be_scored_is_refused(
    runs: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(runs)
    result = run("score", *arguments)
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", f"mtkit: {message}\n")


def test_help_shows_how_an_n_best_list_is_rescored() -> None:
    found = CliRunner().invoke(app, ["score", "--help"], terminal_width=200, env={"COLUMNS": "200"})
    assert "mtkit score runs/multi30k-transformer test.en test.5best --n-best 5" in found.stdout


def test_an_ensemble_scores_with_the_mean_of_probabilities(runs: Path) -> None:
    """One token, EOS after an empty translation: the mean of three probabilities."""
    empty = runs / "empty"
    empty.write_text("\n", encoding="utf-8")
    line = runs / "line"
    line.write_text("the dog\n", encoding="utf-8")
    names = ("rnnsearch", "transformer", "seq2seq")
    alone = [float(run("score", runs / name, line, empty).stdout) for name in names]
    others = [argument for name in names[1:] for argument in ("--ensemble", runs / name)]
    together = float(run("score", runs / names[0], line, empty, *others).stdout)
    assert together == pytest.approx(math.log(sum(map(math.exp, alone)) / 3), abs=2e-4)


def test_an_ensemble_translates(runs: Path) -> None:
    found = run("translate", runs / "rnnsearch", runs / "src", "--ensemble", runs / "transformer", "--alignments")
    assert (found.exit_code, len(found.stdout.splitlines())) == (0, 3)
    itself = run("translate", runs / "rnnsearch", runs / "src", "--ensemble", runs / "rnnsearch")
    assert itself.stdout == run("translate", runs / "rnnsearch", runs / "src").stdout


def test_models_of_other_vocabularies_make_no_ensemble(runs: Path) -> None:
    result = run("translate", runs / "rnnsearch", runs / "src", "--ensemble", runs / "other" / "seq2seq")
    assert result.exit_code == 2
    assert "an ensemble needs models of one target vocabulary" in result.stderr


def test_unknown_words_need_attention_to_be_replaced(runs: Path) -> None:
    result = run("translate", runs / "seq2seq", runs / "src", "--replace-unk")
    assert result.exit_code == 2
    assert result.stderr == f"mtkit: --replace-unk: {runs / 'seq2seq'} has no attention to follow (seq2seq)\n"


def test_a_coverage_penalty_without_a_size_is_refused(runs: Path) -> None:
    result = run("translate", runs / "rnnsearch", runs / "src", "--coverage-penalty", "inf")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "mtkit: coverage_penalty: expected a finite number, got inf\n"


def test_coverage_needs_attention(runs: Path) -> None:
    result = run("translate", runs / "seq2seq", runs / "src", "--coverage-penalty", 0.2)
    assert result.exit_code == 2
    assert result.stderr == "mtkit: a coverage penalty needs a model with attention; this one has none\n"


def test_coverage_only_takes_away_from_a_score(runs: Path, tmp_path: Path) -> None:
    """90 words cannot be covered by 20 + EOS. With beam 1 the text stays; beta 0.5 takes half of what beta 1 takes."""
    source = tmp_path / "src"
    source.write_text("the dog sees a man sees " * 15 + "\n", encoding="utf-8")

    def text_and_score(beta: float) -> tuple[str, float]:
        arguments = ("--greedy", "--max-length-ratio", 0, "--coverage-penalty", beta, "--format", "tsv")
        text, score = run("translate", runs / "rnnsearch", source, *arguments).stdout.rstrip("\n").split("\t")
        return text, float(score)

    (plain, none), (same, half), (again, whole) = map(text_and_score, (0.0, 0.5, 1.0))
    assert plain == same == again
    # 21 over 90 words at best, all alike: no word has more than its share without another having less.
    assert whole - none <= 90 * math.log(21 / 90) + 1e-3
    assert whole - none == pytest.approx(2 * (half - none), abs=3e-4)


def test_unknown_words_are_written_as_the_dictionary_says(runs: Path, tmp_path: Path) -> None:
    """A model that writes UNK alone: all of its weight goes to the bias of UNK."""
    source, dictionary = tmp_path / "src", tmp_path / "words.tsv"
    source.write_text("Zyzzyva\n", encoding="utf-8")
    dictionary.write_text("Zyzzyva\tRüsselkäfer\n", encoding="utf-8")
    model = unknowing(runs / "rnnsearch", tmp_path)
    arguments = ("translate", model, source, "--greedy", "--max-length-ratio", 0)
    plain, copied = run(*arguments).stdout, run(*arguments, "--replace-unk").stdout
    translated = run(*arguments, "--replace-unk", "--dictionary", dictionary).stdout
    assert "Zyzzyva" not in plain and "<unk>" not in plain
    assert set(copied.split()) == {"Zyzzyva"}
    assert set(translated.split()) == {"Rüsselkäfer"}
    assert run(*arguments, "--dictionary", dictionary).stdout == translated, "a dictionary is for nothing else"


def unknowing(model: Path, folder: Path) -> Path:
    copy = shutil.copytree(model, folder / "unknowing")
    place = checkpoints_folder(copy) / "update-30"
    weights = read_tensors(place, "model.safetensors", read_state(place))
    name = "output.bias"
    weights[name][UNK_ID] += 50
    state = {key: value for key, value in read_state(place).items() if key not in ("format", "sha256")}
    save_checkpoint(copy, "update-30", weights, {}, state)
    return copy
