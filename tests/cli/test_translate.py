from __future__ import annotations

import gzip
import io
import json
import math
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from mtkit import checkpoint
from mtkit.cli import app
from mtkit.cli.translate import translate
from mtkit.models import Memory, Step, TranslationModel
from mtkit.recipe import Recipe
from mtkit.text.tokenizer import EOS_ID, Tokenizers, learn

N_OTHERS = 30  # a vocabulary of 31: four special tokens, 26 letters and the blank
SOURCE = "ab c\n\n \t\nde\n"


class EchoModel(TranslationModel):
    """Copies its source with probability 0.97 a token; attention on the token that is copied."""

    has_attention = True

    def __init__(self) -> None:
        super().__init__()
        self.output = nn.Identity()

    def encode(self, src, src_pad_mask):
        return Memory(src, src_pad_mask)

    def start(self, memory):
        return torch.zeros(len(memory.states), dtype=torch.int64)  # how many tokens are out

    def step(self, prev, state, memory, *, need_attention=False):
        width = len(prev) // len(memory.states)
        sources = memory.states.repeat_interleave(width, 0)
        position = state.clamp(max=sources.shape[1] - 1)
        copied = sources.gather(1, position[:, None])
        copied = copied.where(copied != 0, EOS_ID)
        logits = torch.full((len(prev), N_OTHERS + 1), math.log(0.03 / N_OTHERS)).scatter(1, copied, math.log(0.97))
        attention = nn.functional.one_hot(position, sources.shape[1]).float() if need_attention else None
        return Step(logits, state + 1, attention)

    def features(self, src, src_pad_mask, trg_in):
        raise NotImplementedError


@pytest.fixture
def loaded(monkeypatch):
    """A model folder 'echo' with beam size 3, found wherever a model is loaded."""
    letters = learn(["abcdefghijklmnopqrstuvwxyz zyxwvutsrqponmlkjihgfedcba"], kind="char", vocab_size=N_OTHERS + 1)
    recipe = Recipe(
        name="echo",
        data={"src": "xx", "trg": "yy", "train": "train", "dev": "dev"},
        model={"type": "echo"},
        train={"updates": 1},
        search={"beam_size": 3, "max_source_tokens": 12},
    )
    found = checkpoint.LoadedModel(
        EchoModel().eval(), Tokenizers(letters, letters, shared=True), recipe, Path("echo"), "update-1", 1
    )
    monkeypatch.setattr(checkpoint, "load_model", lambda folder, *, device="cpu": found)
    return found


def run(*arguments, stdin=""):
    return CliRunner().invoke(app, ["translate", "echo", "--device", "cpu", *map(str, arguments)], input=stdin)


def score(n_tokens):
    """Mean log-probability of so many tokens, the leading blank and EOS among them, each copied with 0.97."""
    return f"{math.log(0.97):.4f}" if n_tokens else "0.0000"


def test_a_line_in_is_a_line_out_and_empty_stays_empty(loaded):
    result = run(stdin=SOURCE)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "ab c\n\n\nde\n", "")


@pytest.mark.parametrize("stdin", ["\n\n\n", "", "ab", "same\n" * 7, "ab!\u2028\u0085\x0c\x00c\n"])
def test_the_line_count_is_kept_whatever_the_lines_hold(loaded, stdin):
    result = run("--greedy", stdin=stdin)
    assert result.exit_code == 0
    assert result.stdout_bytes.count(b"\n") == stdin.count("\n") + (stdin != "" and not stdin.endswith("\n"))


def test_file_pipe_output_file_and_compressed_file_give_the_same_bytes(loaded, tmp_path):
    plain, packed, output = tmp_path / "ü, x.txt", tmp_path / "x.gz", tmp_path / "out"
    plain.write_text(SOURCE, encoding="utf-8")
    packed.write_bytes(gzip.compress(SOURCE.encode()))
    piped = run("--format", "tsv", stdin=SOURCE).stdout_bytes
    assert piped
    assert run(plain, "--format", "tsv").stdout_bytes == piped
    assert run(packed, "--format", "tsv").stdout_bytes == piped
    assert run("-", "--format", "tsv", stdin=SOURCE).stdout_bytes == piped
    result = run(plain, "--format", "tsv", "--output", output)
    assert (result.exit_code, result.stdout) == (0, "")
    assert output.read_bytes() == piped


def test_tsv_has_the_score_behind_the_text(loaded):
    assert run("--format", "tsv", stdin=SOURCE).stdout.split("\n") == [
        f"ab c\t{score(6)}",
        "\t0.0000",
        "\t0.0000",
        f"de\t{score(4)}",
        "",
    ]


def test_length_penalty_and_normalization_override_the_recipe(loaded):
    plain = run("--format", "tsv", "--length-penalty", 0, stdin="ab\n").stdout
    assert plain == f"ab\t{4 * math.log(0.97):.4f}\n"
    gnmt = run("--format", "tsv", "--length-penalty", 2, "--length-normalization", "gnmt", stdin="ab\n").stdout
    assert gnmt == f"ab\t{4 * math.log(0.97) / 2.25:.4f}\n"


def test_n_best_gives_n_lines_for_every_line(loaded):
    lines = run("--n-best", 3, stdin="ab\n\nc\n").stdout.split("\n")
    assert len(lines) == 3 * 3 + 1
    assert (lines[0], lines[3:6], lines[6]) == ("ab", ["", "", ""], "c")
    assert "" not in lines[1:3] + lines[7:9]


@pytest.mark.parametrize(("options", "n_columns"), [((), 2), (("--alignments",), 3)])
def test_what_fills_up_the_n_best_has_all_columns(loaded, options, n_columns):
    lines = run("--format", "tsv", "--n-best", 3, *options, stdin="\nab\n").stdout.splitlines()
    assert len(lines) == 6
    assert {line.count("\t") for line in lines} == {n_columns - 1}
    assert not any(field for line in lines[1:3] for field in line.split("\t"))


def test_n_best_1_is_the_first_of_n_best_3(loaded):
    assert (
        run(stdin="ab\ncd e\n").stdout.splitlines() == run("--n-best", 3, stdin="ab\ncd e\n").stdout.splitlines()[::3]
    )


def test_jsonl_has_one_object_a_line_with_all_hypotheses(loaded):
    first, empty = map(json.loads, run("--format", "jsonl", "--n-best", 2, stdin="ab\n\n").stdout.splitlines())
    assert first["source"] == first["translation"] == "ab"
    assert first["source_tokens"] == ["\u2581", "a", "b"]
    assert first["score"] == pytest.approx(math.log(0.97), abs=1e-4)
    assert first["log_prob"] == pytest.approx(4 * math.log(0.97), abs=1e-4)
    assert "alignment" not in first
    assert len(first["hypotheses"]) == 2
    best = {key: first[key] for key in ("translation", "score", "log_prob")}
    assert first["hypotheses"][0] == {**best, "tokens": ["\u2581", "a", "b"]}
    assert first["hypotheses"][1]["score"] < first["score"]
    nothing = {"translation": "", "score": 0.0, "log_prob": 0.0}
    assert empty == {"source": "", **nothing, "source_tokens": [], "hypotheses": [{**nothing, "tokens": []}]}


def test_alignments_stand_behind_the_text_as_source_target_pairs(loaded):
    assert run("--alignments", stdin="ab\n\n").stdout == "ab ||| 0-0 1-1 2-2\n ||| \n"
    assert run("--alignments", "--format", "tsv", stdin="ab\n").stdout == f"ab\t{score(4)}\t0-0 1-1 2-2\n"
    (line,) = run("--alignments", "--format", "jsonl", stdin="ab\n").stdout.splitlines()
    assert json.loads(line)["alignment"] == "0-0 1-1 2-2"
    assert json.loads(line)["hypotheses"][0]["alignment"] == "0-0 1-1 2-2"


def test_alignments_of_a_model_without_attention_are_refused(loaded, monkeypatch):
    monkeypatch.setattr(EchoModel, "has_attention", False)
    result = run("--alignments", stdin="ab\n")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "mtkit: --alignments: echo has no attention to align with (echo)\n"


def test_greedy_is_beam_1(loaded):
    assert (
        run("--greedy", "--format", "tsv", stdin=SOURCE).stdout
        == run("--beam", 1, "--format", "tsv", stdin=SOURCE).stdout
    )
    assert run("--greedy", "--beam", 1, stdin="ab\n").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--greedy", "--beam", 5], "--greedy and --beam 5 contradict each other"),
        (["--beam", 5, "--n-best", 10], "n-best 10 needs a beam of at least 10, got 5"),
        (["--greedy", "--n-best", 2], "n-best 2 needs a beam of at least 2, got 1"),
        (["--max-length-ratio", "inf"], "max_length_ratio: expected a finite number, got inf"),
        (["no such.txt"], "no such.txt: no such file"),
        (["--device", "tpu9"], "--device: expected auto, cpu, cuda or cuda:N; got 'tpu9'"),
    ],
)
def test_a_wrong_request_is_refused_with_one_line(loaded, arguments, message):
    result = run(*arguments, stdin="ab\n")
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", f"mtkit: {message}\n")


def test_a_refused_request_leaves_the_output_file_alone(loaded, tmp_path):
    output = tmp_path / "out"
    output.write_text("before")
    assert run("--n-best", 10, "--output", output, stdin="ab\n").exit_code == 2
    assert output.read_text() == "before"
    assert list(tmp_path.iterdir()) == [output]


def test_invalid_utf8_is_reported_with_its_line_and_replaced(loaded):
    result = run(stdin=b"ab\nc\xffd\nef\n")
    assert result.exit_code == 0
    assert result.stdout.count("\n") == 3
    assert result.stderr == "mtkit: warning: <stdin>:2: invalid UTF-8, replaced by U+FFFD\n"


def test_strict_makes_invalid_utf8_an_error_and_leaves_no_output_file(loaded, tmp_path):
    result = run("--strict", "--output", tmp_path / "out", stdin=b"ab\nc\xffd\nef\n")
    assert result.exit_code == 2
    assert "<stdin>:2: invalid UTF-8" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_long_line_is_cut_with_a_warning_that_names_file_and_line(loaded, tmp_path):
    text = tmp_path / "long.txt"
    text.write_text("ab\n" + "c" * 5000 + "\nde\n")
    result = run(text)
    assert (result.exit_code, result.stdout) == (0, "ab\nccccccccccc\nde\n")
    assert result.stderr == f"mtkit: warning: {text}: line 2: 5001 tokens, cut to the first 12\n"


def test_standard_input_is_streamed(loaded, monkeypatch):
    """The first block is written and flushed when the second one is asked for."""
    written = io.BytesIO()
    seen = []

    class Output(io.BytesIO):
        def flush(self):
            written.write(self.getvalue()[written.tell() :])

    class Input(io.RawIOBase):
        chunks = [b"ab\n", b"cd\n"]

        def read1(self, size=-1):
            seen.append(written.getvalue())
            return self.chunks.pop(0) if self.chunks else b""

    monkeypatch.setattr(sys, "stdin", type("Stdin", (), {"buffer": Input(), "isatty": lambda self: False})())
    monkeypatch.setattr(sys, "stdout", type("Stdout", (), {"buffer": Output(), "isatty": lambda self: False})())
    translate(Path("echo"), device="cpu")
    assert seen == [b"", b"ab\n", b"ab\ncd\n"]


def test_threads_are_those_asked_for(loaded, monkeypatch):
    asked = []
    monkeypatch.setattr(torch, "set_num_threads", asked.append)
    assert run("--threads", 1, stdin="ab\n").exit_code == 0
    assert asked == [1]


def test_bf16_translates_like_fp32_where_nothing_is_near_a_tie(loaded):
    assert run("--precision", "bf16", stdin=SOURCE).stdout == run(stdin=SOURCE).stdout


def test_help_shows_an_example():
    result = CliRunner().invoke(app, ["translate", "--help"])
    assert result.exit_code == 0
    assert "mtkit translate runs/multi30k" in result.stdout
