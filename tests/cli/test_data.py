"""mtkit data: stats of a bitext, synthetic pairs."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner, Result

from mtkit.cli import app


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["data", *map(str, arguments)])


def cells(result: Result) -> dict[str, list[str]]:
    """The numbers of each row by its name: columns are set off by two blanks or more."""
    assert result.exit_code == 0, result.stderr
    rows = [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in result.stdout.split("\n")]
    return {row[0]: row[1:] for row in rows if row}


@pytest.fixture
def corpus(tmp_path):
    (tmp_path / "t.en").write_text("a b c d e f\nhi\n\nhi\n", encoding="utf-8")
    (tmp_path / "t.de").write_text("A B\nhi\nB\nhi\n", encoding="utf-8")
    return tmp_path


def test_stats_of_two_files_is_plain_text_in_a_pipe(corpus):
    found = cells(run("stats", corpus / "t.en", corpus / "t.de"))
    assert found["lines"] == ["4", "4"]
    assert found["words"] == ["8", "5"]
    assert found["characters"] == ["15", "8"]
    assert found["words a line"] == ["2.0", "1.2"]
    assert found["longest line in words"] == ["6", "2"]
    assert found["empty lines"] == ["1", "0"]
    assert found["target words per source word"] == ["0.62"]
    assert found["pairs with an empty side"] == ["1"]
    assert found["pairs with one side over twice as long"] == ["1"]
    assert found["pairs with the same text on both sides"] == ["2"]
    assert found["duplicate pairs"] == ["1"]
    assert found["lines with invalid UTF-8"] == ["0"]
    assert found["0-5"] == ["3", "4"]
    assert found["6-10"] == ["1", "0"]


def test_stats_of_a_source_as_in_a_recipe(corpus):
    prefix = run("stats", corpus / "t", "--src-lang", "en", "--trg-lang", "de")
    assert prefix.stdout == run("stats", corpus / "t.en", corpus / "t.de").stdout
    (corpus / "t.tsv").write_text("a\tA\nb\tB\n")
    assert cells(run("stats", corpus / "t.tsv"))["lines"] == ["2", "2"]


def test_stats_of_the_grammar_need_no_languages():
    """The help's own example."""
    found = cells(run("stats", "synthetic:train,pairs=50"))
    assert found["lines"] == ["50", "50"]
    back = cells(run("stats", "synthetic:train,pairs=50", "--src-lang", "de", "--trg-lang", "en"))
    assert back["words"] == found["words"][::-1]


def test_stats_that_cannot_be_had_say_why(corpus):
    result = run("stats", corpus / "t")
    assert result.exit_code == 2
    assert result.stderr == f"mtkit: {corpus / 't'}: give the target file too, or --src-lang and --trg-lang\n"
    (corpus / "short.de").write_text("A\n")
    result = run("stats", corpus / "t.en", corpus / "short.de")
    assert result.exit_code == 2
    assert result.stderr == (
        f"mtkit: {corpus / 't.en'} and {corpus / 'short.de'}: unequal line counts, 4 and 1; "
        "the two sides must match line by line\n"
    )


def test_synth_writes_aligned_files(tmp_path):
    prefix = tmp_path / "toy"
    result = run("synth", "--split", "dev", "--pairs", 30, "--seed", 4, "--output", prefix, "--alignments")
    assert result.exit_code == 0
    assert result.stdout == ""
    assert result.stderr == f"{prefix}.en, {prefix}.de, {prefix}.align: 30 pairs\n"
    src, trg, links = ((tmp_path / f"toy.{end}").read_text("utf-8").split("\n") for end in ("en", "de", "align"))
    assert len(src) == len(trg) == len(links) == 31
    assert all(3 <= len(line.split()) <= 20 for line in src[:-1])
    for line in links[:-1]:
        assert all(part.isdigit() for link in line.split() for part in link.split("-", 1))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["toy.align", "toy.de", "toy.en"]


def test_synth_without_output_is_a_table_of_the_same_pairs(tmp_path):
    options = ("--pairs", 5, "--min-words", 6, "--max-words", 9)
    plain = run("synth", *options)
    assert run("synth", *options, "--output", tmp_path / "toy").exit_code == 0
    src, trg = ((tmp_path / f"toy.{end}").read_text("utf-8").split("\n")[:-1] for end in ("en", "de"))
    assert plain.stdout == "".join(f"{a}\t{b}\n" for a, b in zip(src, trg, strict=True))
    with_links = run("synth", *options, "--alignments").stdout.split("\n")[:-1]
    assert [line.split("\t")[:2] for line in with_links] == [[a, b] for a, b in zip(src, trg, strict=True)]
    assert all(len(line.split("\t")) == 3 for line in with_links)


def test_synth_pairs_are_what_a_recipe_reads(tmp_path):
    from mtkit.data.sources import open_bitext

    bitext = open_bitext("synthetic:test,pairs=5,seed=9", src="en", trg="de", root=tmp_path)
    made = run("synth", "--split", "test", "--pairs", 5, "--seed", 9).stdout
    assert made == "".join(f"{src}\t{trg}\n" for src, trg in bitext.pairs())
