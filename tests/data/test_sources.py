"""Every way in for sentence pairs, and what is refused on the way."""

from __future__ import annotations

import gzip
import json
import shutil
import sys
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

from mtkit.data.sources import Bitext, Thinned, check_aligned, needs_languages, open_bitext
from mtkit.errors import DataError
from mtkit.recipe import FilePair


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path


def open_one(root: Path, source: str | FilePair) -> Bitext:
    return open_bitext(source, src="en", trg="de", root=root)


def message_of(root: Path, source: str | FilePair) -> str:
    """What the user reads when this source is opened and read, with the folder cut out."""
    with pytest.raises(DataError) as caught:
        check_aligned(open_one(root, source))
    return str(caught.value).replace(f"{root}/", "")


def test_aligned_files_by_prefix(root):
    (root / "train.en").write_bytes(b"a\r\nb\n")
    (root / "train.de").write_bytes(b"A\nB")
    bitext = open_one(root, "train")
    assert list(bitext.pairs()) == [("a", "A"), ("b", "B")]
    assert bitext.files == (root / "train.en", root / "train.de")
    assert check_aligned(bitext) == 2


def test_each_side_may_be_compressed_on_its_own(root):
    (root / "train.en.gz").write_bytes(gzip.compress(b"a\nb\n"))
    (root / "train.de").write_bytes(b"A\nB\n")
    assert list(open_one(root, "train").pairs()) == [("a", "A"), ("b", "B")]


def test_aligned_files_by_name_with_blanks_commas_and_umlauts(root):
    (root / "dir ü, x").mkdir()
    (root / "dir ü, x" / "source file.txt").write_bytes(b"a\n")
    (root / "dir ü, x" / "target:file.txt").write_bytes(b"A\n")
    pair = FilePair(src="dir ü, x/source file.txt", trg="dir ü, x/target:file.txt")
    assert list(open_one(root, pair).pairs()) == [("a", "A")]


def test_missing_side_is_named_at_once(root):
    (root / "train.en").write_bytes(b"a\n")
    with pytest.raises(DataError) as caught:
        open_one(root, "train")
    assert str(caught.value) == f"{root / 'train.de'}: no such file"
    with pytest.raises(DataError) as caught:
        open_one(root, FilePair(src="nosuch.en", trg="train.de"))
    assert str(caught.value) == f"{root / 'nosuch.en'}: no such file"


@pytest.mark.parametrize("name", ["dev.de", "dev.de.gz"])
def test_empty_file_is_refused_at_once(root, name):
    (root / "dev.en").write_bytes(b"a\n")
    (root / name).write_bytes(gzip.compress(b"") if name.endswith(".gz") else b"")
    with pytest.raises(DataError) as caught:
        open_one(root, "dev")
    assert str(caught.value) == f"{root / name}: the file is empty"


def test_folder_is_no_text(root):
    (root / "dev.en").mkdir()
    (root / "dev.de").write_bytes(b"A\n")
    assert message_of(root, "dev") == "dev.en: is a folder, not a file"


@pytest.mark.parametrize(
    ("src", "trg", "counts"),
    [
        (b"a\nb\nc\n", b"A\nB\n", (3, 2)),
        (b"a\n", b"A\nB\nC\nD\nE", (1, 5)),
        (b"a\nb\n\n", b"A\nB\n", (3, 2)),
    ],
)
def test_unequal_line_counts_name_both_files_and_both_counts(root, src, trg, counts):
    (root / "s").write_bytes(src)
    (root / "t").write_bytes(trg)
    assert message_of(root, FilePair(src="s", trg="t")) == (
        f"s and t: unequal line counts, {counts[0]} and {counts[1]}; the two sides must match line by line"
    )


def test_invalid_utf8_is_counted_over_both_sides_and_anew_each_time(root):
    (root / "t.en").write_bytes(b"a\xff\nb\n")
    (root / "t.de").write_bytes(b"A\xff\nB\xff\n")
    bitext = open_one(root, "t")
    for _ in range(2):
        assert list(bitext.pairs()) == [("a\ufffd", "A\ufffd"), ("b", "B\ufffd")]
        assert bitext.invalid == 3


def test_a_share_is_spread_evenly_over_the_bitext(root):
    (root / "t.en").write_bytes(b"".join(b"%d\n" % n for n in range(10)) + b"\xff\n")
    (root / "t.de").write_bytes(b"x\n" * 11)
    whole = open_one(root, "t")
    half, third = Thinned(whole, 0.5), Thinned(whole, 0.3)
    assert [src for src, _ in half.pairs()] == ["1", "3", "5", "7", "9"]
    assert half.invalid == 1, "the line that was read behind the last pair counts too"
    assert [src for src, _ in third.pairs()] == ["3", "6", "9"]
    assert check_aligned(half) == 5
    assert len({each.fingerprint() for each in (whole, half, third)}) == 3


def test_quotes_in_tsv_are_plain_characters(root):
    (root / "q.tsv").write_bytes(b'He said "hi\tEr sagte "hallo\n"Quote first\tfoo\nline3\tbar\textra\n"end\tbaz\n')
    assert list(open_one(root, "q.tsv").pairs()) == [
        ('He said "hi', 'Er sagte "hallo'),
        ('"Quote first', "foo"),
        ("line3", "bar"),
        ('"end', "baz"),
    ]


def test_tsv_may_be_compressed_and_hold_blank_lines(root):
    (root / "q.tsv.gz").write_bytes(gzip.compress(b"a\tA\n\nNA\tnull\n"))
    assert list(open_one(root, "q.tsv.gz").pairs()) == [("a", "A"), ("", ""), ("NA", "null")]


def test_tsv_row_of_one_column_is_named(root):
    (root / "q.tsv").write_bytes(b"a\tA\nb B\n")
    assert message_of(root, "q.tsv") == "q.tsv:2: expected two tab-separated columns, found one"


def write_jsonl(path: Path, *rows: object) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def test_dates_in_jsonl_stay_text(root):
    write_jsonl(root / "d.jsonl", {"en": "2024-01-01", "de": "x"}, {"de": "y", "en": "2024-01-02", "id": 7})
    assert list(open_one(root, "d.jsonl").pairs()) == [("2024-01-01", "x"), ("2024-01-02", "y")]


def test_jsonl_texts_become_lines(root):
    write_jsonl(root / "d.jsonl", {"en": "a\nb", "de": "A\u2028B"}, {"translation": {"en": "half \ud83d", "de": "x"}})
    bitext = open_one(root, "d.jsonl")
    assert list(bitext.pairs()) == [("a b", "A\u2028B"), ("half \ufffd", "x")]
    assert bitext.invalid == 1


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"en": 5, "de": "x"}', "d.jsonl:2: 'en' is not text but int"),
        ('{"en": "a", "de": null}', "d.jsonl:2: 'de' is not text but NoneType"),
        ('{"en": "a", "fr": "b"}', "d.jsonl:2: no key 'de'; found en, fr"),
        ("[1]", "d.jsonl:2: expected a JSON object, got list"),
    ],
)
def test_jsonl_row_that_is_no_pair_is_named(root, line, message):
    (root / "d.jsonl").write_text('{"en": "a", "de": "b"}\n' + line + "\n", encoding="utf-8")
    assert message_of(root, "d.jsonl") == message


@pytest.mark.parametrize("line", ['{"en": "a', "[" * 100_000])
def test_jsonl_line_that_is_no_json_is_named(root, line):
    (root / "d.jsonl").write_text(line + "\n", encoding="utf-8")
    assert message_of(root, "d.jsonl").startswith("d.jsonl:1: not JSON (")


def save_dataset(folder: Path, rows: list[dict[str, object]]) -> None:
    import datasets

    datasets.Dataset.from_list(rows).save_to_disk(str(folder))


def test_local_dataset_folder_even_with_a_colon_in_its_name(root):
    save_dataset(root / "set:1", [{"en": "a", "de": "A"}, {"en": "b\nc", "de": "B"}])
    bitext = open_one(root, "hub:set:1")
    assert list(bitext.pairs()) == [("a", "A"), ("b c", "B")]
    assert bitext.files == ()


def test_local_dataset_with_splits_and_a_translation_column(root):
    import datasets

    def split(word: str) -> datasets.Dataset:
        return datasets.Dataset.from_list([{"translation": {"en": word, "de": word.upper()}}])

    datasets.DatasetDict({"train": split("a"), "test": split("b")}).save_to_disk(str(root / "set"))
    assert list(open_one(root, "hub:set").pairs()) == [("a", "A")]
    assert list(open_one(root, "hub:set:test").pairs()) == [("b", "B")]
    assert message_of(root, "hub:set:dev") == "hub:set:dev: no split 'dev'; found train, test"


def test_dataset_without_the_languages_or_with_other_types_is_refused(root):
    save_dataset(root / "fr", [{"en": "a", "fr": "A"}])
    assert message_of(root, "hub:fr") == (
        "hub:fr: row 1: no key 'de'; found en, fr; name other columns with ,src=COLUMN,trg=COLUMN behind it"
    )
    save_dataset(root / "int", [{"en": "a", "de": 5}])
    assert message_of(root, "hub:int").startswith("hub:int: row 1: 'de' is not text but int")


def test_other_columns_of_a_dataset_can_be_named(root):
    save_dataset(root / "a,b", [{"English": "a", "Deutsch": "A"}])
    assert list(open_one(root, "hub:a,b,src=English,trg=Deutsch").pairs()) == [("a", "A")]
    assert message_of(root, "hub:a,b,src=english,trg=Deutsch") == (
        "hub:a,b,src=english,trg=Deutsch: row 1: no key 'english'; found English, Deutsch"
    )
    assert message_of(root, "hub:a,b,source=English") == (
        "hub:a,b,source=English: 'source=English' is unknown or there twice; known are src=…, trg=…, config=…"
    )
    assert "'src=x' is unknown or there twice" in message_of(root, "hub:a,b,src=x,src=English,trg=Deutsch")
    assert not needs_languages("hub:a,b,src=English,trg=Deutsch") and needs_languages("hub:a,b,src=English")


def test_a_configuration_of_a_dataset_can_be_named(root, monkeypatch):
    """Where the language codes name none."""
    import datasets

    asked = []

    def load_dataset(*arguments: object) -> datasets.Dataset:
        asked.append(arguments)
        return datasets.Dataset.from_list([{"en": "a", "de": "A"}])

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    monkeypatch.setattr(datasets, "get_dataset_config_names", lambda name: ["all", "de-en"])
    for source in ("hub:owner/name:train,config=all", "hub:owner/name"):
        assert list(open_one(root, source).pairs()) == [("a", "A")]
    assert asked == [("owner/name", "all"), ("owner/name", "de-en")]


def test_a_table_in_a_folder_is_read_as_a_file_of_lines_and_not_as_csv(root):
    """A quotation mark that opens a cell would take in all rows to the next one."""
    (root / "set").mkdir()
    (root / "set" / "train.tsv").write_text('en\tde\n"a\tA\nb\tB\n', encoding="utf-8")
    assert message_of(root, "hub:set") == (
        "hub:set: holds train.tsv; name that file as the source: hub: would read its quotes as CSV's"
    )
    save_dataset(root / "saved", [{"en": "a", "de": "A"}])
    (root / "saved" / "statistics.tsv").write_text("pairs\t1\n", encoding="utf-8")
    assert list(open_one(root, "hub:saved").pairs()) == [("a", "A")]


def test_a_copied_dataset_is_the_same_text(root):
    """A run that goes on elsewhere looks at the text, not at the folder's name and times."""
    save_dataset(root / "one", [{"en": "a", "de": "A"}, {"en": "b", "de": "B"}])
    shutil.copytree(root / "one", root / "copy")
    save_dataset(root / "other", [{"en": "a", "de": "A"}, {"en": "b", "de": "C"}])
    one, copy, other = (open_one(root, f"hub:{name}").fingerprint() for name in ("one", "copy", "other"))
    assert one == copy != other


class Pair(NamedTuple):
    src: str
    trg: str
    alignment: tuple[tuple[int, int], ...]


@pytest.fixture
def grammar(monkeypatch, tmp_path) -> list[dict[str, object]]:
    """A stand-in for the grammar that notes what it is asked for."""
    calls: list[dict[str, object]] = []
    module = ModuleType("mtkit.text.grammar")
    module.__file__ = str(tmp_path / "grammar.py")
    (tmp_path / "grammar.py").write_text("version 1")

    def generate(**settings):
        calls.append(settings)
        yield Pair("Anna sleeps.", "Anna schläft.", ((0, 0), (1, 1)))

    module.generate = generate  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mtkit.text.grammar", module)
    import mtkit.text

    monkeypatch.setattr(mtkit.text, "grammar", module, raising=False)
    return calls


def test_synthetic_source_passes_its_settings_on(root, grammar):
    source = "synthetic:dev,pairs=7,min_words=4,max_words=9,seed=3"
    assert list(open_one(root, source).pairs()) == [("Anna sleeps.", "Anna schläft.")]
    assert grammar == [{"split": "dev", "pairs": 7, "min_words": 4, "max_words": 9, "seed": 3}]


def test_synthetic_pairs_know_their_word_links_in_either_direction(root):
    """One pair of the grammar: each link joins the words that it names, whichever side is the source."""
    from mtkit.text.syntax import split_words

    forth = open_bitext("synthetic:test,pairs=3", src="en", trg="de", root=root)
    back = open_bitext("synthetic:test,pairs=3", src="de", trg="en", root=root)
    assert [(trg, src) for src, trg in forth.pairs()] == list(back.pairs())
    for (src, trg), links, turned in zip(forth.pairs(), forth.alignments(), back.alignments(), strict=True):
        assert links and turned == sorted((there, here) for here, there in links)
        assert max(here for here, _ in links) < len(split_words(src))
        assert max(there for _, there in links) < len(split_words(trg))


def test_text_files_know_no_word_links(root):
    for side in ("en", "de"):
        (root / f"plain.{side}").write_text("a\n", encoding="utf-8")
    assert open_bitext("plain", src="en", trg="de", root=root).alignments() is None


def test_fingerprint_of_synthetic_pairs_follows_the_grammar(root, grammar):
    before = open_one(root, "synthetic:dev,pairs=7").fingerprint()
    assert open_one(root, "synthetic:dev,pairs=7").fingerprint() == before
    assert open_one(root, "synthetic:dev,pairs=8").fingerprint() != before
    (root / "grammar.py").write_text("version 2")
    assert open_one(root, "synthetic:dev,pairs=7").fingerprint() != before


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("synthetic:train,pair=3", "unknown key 'pair'; did you mean 'pairs'?"),
        ("synthetic:train,zzz=3", "unknown key 'zzz'; known are pairs, min_words, max_words, seed"),
        ("synthetic:train,pairs=many", "pairs: expected a whole number, got 'many'"),
        ("synthetic:train,pairs", "pairs: expected a whole number, got ''"),
        ("synthetic:train,pairs=0", "pairs: must be at least 1"),
        ("synthetic:valid", "expected one of train, dev, test after 'synthetic:'; got 'valid'"),
    ],
)
def test_wrong_synthetic_source_is_refused_at_once(root, source, message):
    with pytest.raises(DataError) as caught:
        open_one(root, source)
    assert str(caught.value) == f"{source}: {message}"


def test_fingerprint_is_of_the_content_not_of_the_place(root):
    for folder, text in (("a", b"x\n"), ("b", b"x\n"), ("c", b"y\n")):
        (root / folder).mkdir()
        (root / folder / "t.en").write_bytes(text)
        (root / folder / "t.de").write_bytes(b"X\n")
    first, same, other = (open_one(root / folder, "t").fingerprint() for folder in "abc")
    assert first == same != other


def test_fingerprint_tells_where_one_file_ends(root):
    (root / "s").write_bytes(b"a\nb\n")
    (root / "t").write_bytes(b"c\n")
    (root / "s2").write_bytes(b"a\n")
    (root / "t2").write_bytes(b"b\nc\n")
    first = open_one(root, FilePair(src="s", trg="t")).fingerprint()
    assert first != open_one(root, FilePair(src="s2", trg="t2")).fingerprint()


def test_only_some_sources_need_language_codes():
    assert [needs_languages(source) for source in ("a", "a.jsonl", "hub:x", "a.tsv", "a.tsv.gz", "synthetic:dev")] == [
        *(True, True, True),
        *(False, False, False),
    ]


def test_the_grammar_goes_both_ways_and_no_other(tmp_path: Path) -> None:
    source = "synthetic:test,pairs=3"
    there = list(open_bitext(source, src="en", trg="de", root=tmp_path).pairs())
    back = list(open_bitext(source, src="de", trg="en", root=tmp_path).pairs())
    assert back == [(trg, src) for src, trg in there]
    with pytest.raises(DataError, match="English and German"):
        open_bitext(source, src="en", trg="fr", root=tmp_path)
