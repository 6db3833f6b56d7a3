"""mtkit tokenize: learn, encode, decode; one line in, one line out."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError
from typer.testing import CliRunner, Result

from mtkit.cli import app
from mtkit.errors import DataError
from mtkit.recipe import TextSection
from mtkit.text.tokenizer import Tokenizer, learn

LINES = ["the old man sees a dog", "a young cat sleeps near the café", "on 25. September – it rained"] * 10
# 13 LF, the last line open: 14 lines
TRICKY = b"one\nA\xe2\x80\xa8B\nA\xe2\x80\xa9B\nA\xc2\x85B\nA\x0bB\nA\x0cB\nA\x1cB\nA\rB\nA\r\nx\n\nN\x00B\nt\tb\nlast"


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("tokenizer") / "m.model"
    learn(LINES, kind="bpe", vocab_size=60).save(path)
    return path


def run(*arguments: object, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(app, ["tokenize", *map(str, arguments)], input=stdin)


def output_lines(result: Result) -> list[str]:
    assert result.exit_code == 0, result.stderr
    return result.stdout_bytes.decode("utf-8").split("\n")[:-1]


def test_train_takes_several_compressed_files_with_difficult_names(tmp_path):
    folder = tmp_path / "dir ü, x"
    folder.mkdir()
    (folder / "train file.txt").write_text("\n".join(LINES), encoding="utf-8")
    (folder / "more, text.gz").write_bytes(gzip.compress("Ω Ω Ω\n".encode()))
    output = folder / "m, ü.model"
    result = run(
        "train", "--input", folder / "train file.txt", folder / "more, text.gz", "--output", output, "--size", 60
    )
    assert result.exit_code == 0
    assert (result.stdout, result.stderr) == ("", f"{output}: bpe, 60 pieces\n")
    tokenizer = Tokenizer.load(output)
    assert (tokenizer.kind, tokenizer.vocab_size) == ("bpe", 60)
    assert "Ω" in tokenizer.pieces(range(60))


def test_train_passes_its_options_on(tmp_path):
    (tmp_path / "t").write_text("\n".join(LINES), encoding="utf-8")
    options = ("--kind", "unigram", "--size", 300, "--normalization", "nfkc_cf", "--byte-fallback")
    result = run("train", "-i", tmp_path / "t", "-o", tmp_path / "m", *options, "--character-coverage", 0.98)
    assert result.exit_code == 0
    keys = {"kind": "unigram", "vocab_size": 300, "normalization": "nfkc_cf", "byte_fallback": True}
    assert Tokenizer.load(tmp_path / "m").model == learn(LINES, **keys, character_coverage=0.98).model


def test_a_coverage_that_sentencepiece_does_not_know_is_refused_by_the_option(tmp_path):
    (tmp_path / "t").write_text("\n".join(LINES), encoding="utf-8")
    result = run("train", "-i", tmp_path / "t", "-o", tmp_path / "m", "--character-coverage", 0.97)
    assert result.exit_code == 2
    told = " ".join(result.stderr.replace("│", " ").split())
    assert "Invalid value for '--character-coverage': " in told and "0.98" in told
    with pytest.raises(ValidationError, match="character_coverage"):
        TextSection(character_coverage=0.97)
    with pytest.raises(DataError, match="character_coverage"):
        learn(LINES, kind="bpe", vocab_size=60, character_coverage=0.97)


def test_train_from_crlf_text_gives_the_same_model(tmp_path):
    for name, end in (("lf", b"\n"), ("crlf", b"\r\n")):
        (tmp_path / name).write_bytes(b"".join(line.encode() + end for line in LINES))
        assert run("train", "-i", tmp_path / name, "-o", tmp_path / f"{name}.model", "--size", 60).exit_code == 0
    assert (tmp_path / "lf.model").read_bytes() == (tmp_path / "crlf.model").read_bytes()


def test_train_says_when_the_text_is_too_small_for_the_size(tmp_path):
    (tmp_path / "t").write_text("a b c\n")
    result = run("train", "-i", tmp_path / "t", "-o", tmp_path / "m", "--kind", "char", "--size", 500)
    assert result.exit_code == 0
    # a, b, c, the blank and the four specials
    assert result.stderr == f"{tmp_path / 'm'}: char, 8 pieces (the text gives no more; asked for 500)\n"


def test_train_reports_lines_that_are_too_long(tmp_path):
    (tmp_path / "t").write_text("a b c\n" + "ab " * 50_000 + "\n")
    result = run("train", "-i", tmp_path / "t", "-o", tmp_path / "m", "--size", 8)
    assert result.stderr.startswith("mtkit: warning: left out lines of more than 65,536 bytes: 1\n")


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (
            "a b c d\n",
            ("--size", 8),
            "a vocabulary of 8 is too small: this text needs at least 9, one for each character ",
        ),
        ("\n", (), "there is no text to learn a tokenizer from"),
        (None, (), "{folder}/t: no such file"),
    ],
)
def test_train_that_cannot_learn_writes_nothing(tmp_path, text, options, message):
    if text is not None:
        (tmp_path / "t").write_text(text)
    result = run("train", "-i", tmp_path / "t", "-o", tmp_path / "m", *options)
    assert result.exit_code == 2
    assert result.stderr.startswith("mtkit: " + message.format(folder=tmp_path))
    assert not (tmp_path / "m").exists()


def test_encode_writes_pieces_or_ids(model):
    tokenizer = Tokenizer.load(model)
    text = "the old café\n\n"
    assert output_lines(run("encode", "--model", model, stdin=text.encode())) == [
        " ".join(tokenizer.split(["the old café"])[0]),
        "",
    ]
    assert output_lines(run("encode", "--model", model, "--ids", stdin=text.encode())) == [
        " ".join(map(str, tokenizer.encode(["the old café"])[0])),
        "",
    ]


def test_words_and_punctuation_stand_apart_and_come_together_again(tmp_path):
    (tmp_path / "t").write_text("The dog, the cat.\n" * 3)
    assert run("train", "-i", tmp_path / "t", "-o", tmp_path / "m", "--kind", "word", "--size", 50).exit_code == 0
    encoded = run("encode", "-m", tmp_path / "m", stdin=b"The dog, a cat.\n")
    assert output_lines(encoded) == ["▁The ▁dog ▁▂, ▁a ▁cat ▁▂."]
    assert output_lines(run("decode", "-m", tmp_path / "m", stdin=encoded.stdout_bytes)) == ["The dog, a cat."]
    ids = run("encode", "-m", tmp_path / "m", "--ids", stdin=b"The dog, a cat.\n")
    assert output_lines(run("decode", "-m", tmp_path / "m", "--ids", stdin=ids.stdout_bytes)) == ["The dog, <unk> cat."]


def test_words_cannot_be_learned_with_bytes(tmp_path):
    (tmp_path / "t").write_text("The dog\n")
    result = run("train", "-i", tmp_path / "t", "-o", tmp_path / "m", "--kind", "word", "--byte-fallback")
    assert result.exit_code == 2
    assert result.stderr == "mtkit: words are not spelled as bytes: byte fallback needs another kind of token\n"
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("ids", [(), ("--ids",)])
def test_every_line_gives_one_line_there_and_back(model, tmp_path, ids):
    (tmp_path / "in").write_bytes(TRICKY)
    result = run("encode", "-m", model, tmp_path / "in", *ids, "--output", tmp_path / "pieces")
    assert (result.exit_code, result.stdout) == (0, "")
    assert (tmp_path / "pieces").read_bytes().count(b"\n") == 14
    text = run("decode", "-m", model, tmp_path / "pieces", *ids)
    assert text.stdout_bytes.count(b"\n") == 14
    assert b"\r" not in text.stdout_bytes


def test_decode_gives_the_normalised_text_back_and_a_second_round_changes_nothing(model, tmp_path):
    lines = [
        "on 25. September",
        "a – b — «c»",
        "  two  blanks ",
        "Ω unknown Ж",
        "<s> </s> <unk> <pad>",
        "ﬁne a▁b",
    ] * 200
    expected = [
        "on 25. September",
        "a – b — «c»",
        "two blanks",
        "Ω unknown Ж",
        "<s> </s> <unk> <pad>",
        "fine a b",
    ] * 200
    once = "".join(line + "\n" for line in lines).encode()
    for _ in range(2):
        pieces = run("encode", "-m", model, stdin=once).stdout_bytes
        once = run("decode", "-m", model, stdin=pieces).stdout_bytes
        assert once.decode().split("\n")[:-1] == expected


def test_decode_of_ids_marks_the_unknown(model):
    tokenizer = Tokenizer.load(model)
    the, blank = tokenizer.ids(["▁the", "▁"])
    assert output_lines(run("decode", "-m", model, "--ids", stdin=f"2 {the} {blank} 1 3 0".encode())) == ["the <unk>"]


@pytest.mark.parametrize("word", ["60", "-1", "x", "²", "1.5"])
def test_decode_names_what_is_no_id(model, word):
    result = run("decode", "-m", model, "--ids", stdin=f"1 2\n3 {word}\n".encode())
    assert result.exit_code == 2
    assert result.stderr == f"mtkit: <stdin>:2: expected ids below 60, got '{word}'\n"


def test_invalid_utf8_is_replaced_with_a_warning_or_refused(model, tmp_path):
    result = run("encode", "-m", model, stdin=b"the\n\xff\n")
    assert output_lines(result) == ["▁the", ""]  # SentencePiece's default rule makes U+FFFD a blank
    assert result.stderr == "mtkit: warning: <stdin>:2: invalid UTF-8, replaced by U+FFFD\n"
    (tmp_path / "t").write_bytes(b"the\n\xff\n")
    result = run("encode", "-m", model, "--strict", tmp_path / "t", "-o", tmp_path / "out")
    assert result.exit_code == 2
    assert result.stderr == f"mtkit: {tmp_path / 't'}:2: invalid UTF-8 (byte 0xff at 1)\n"
    assert not (tmp_path / "out").exists()


def test_missing_model_or_text_is_named(model, tmp_path):
    result = run("encode", "-m", tmp_path / "no.model", stdin=b"")
    assert (result.exit_code, result.stderr) == (2, f"mtkit: {tmp_path / 'no.model'}: no such file\n")
    result = run("encode", "-m", model, tmp_path / "no.txt")
    assert (result.exit_code, result.stderr) == (2, f"mtkit: {tmp_path / 'no.txt'}: no such file\n")


def test_locale_changes_nothing(model):
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-m", "mtkit", "tokenize", "encode", "-m", str(model)]
    done = subprocess.run(command, input="café \xff\n".encode(), env=environment, capture_output=True, check=True)
    assert done.stdout == run("encode", "-m", model, stdin="café \xff\n".encode()).stdout_bytes
    assert done.stderr == b""


def test_line_is_answered_before_the_next_is_sent(model):
    command = [sys.executable, "-m", "mtkit", "tokenize", "encode", "-m", str(model)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        for _ in range(2):
            process.stdin.write(b"the\n")
            process.stdin.flush()
            assert process.stdout.readline() == "▁the\n".encode()
        process.stdin.close()
        assert process.wait() == 0


def test_reader_that_leaves_ends_it_quietly(model, tmp_path):
    (tmp_path / "long").write_text("the old man sees a dog\n" * 50_000)
    command = f'"{sys.executable}" -m mtkit tokenize encode -m "{model}" "{tmp_path / "long"}" | head -n 1'
    done = subprocess.run(["bash", "-c", command], capture_output=True, check=True)
    assert done.stdout.count(b"\n") == 1
    assert done.stderr == b""
