"""Tokenizers: ids that never move, text that comes back, text that cannot fake a special id."""

from __future__ import annotations

import io

import pytest
import sentencepiece

from mtkit.errors import DataError, ModelError
from mtkit.text import tokenizer as tokenizer_module
from mtkit.text.tokenizer import BOS_ID, EOS_ID, KINDS, PAD_ID, SPECIALS, UNK_ID, Tokenizer, Tokenizers, learn

LINES = [
    "the old man sees a young dog.",
    "and the cat that sleeps on his mat",
    "sees our house near the dog today.",
] * 30
FAKES = "<s> a </s> <pad> the <unk> <0x0A> x<s>y"


def learn_bytes(lines=LINES, **settings) -> Tokenizer:
    return learn(lines, **{"kind": "bpe", "vocab_size": 350, "byte_fallback": True} | settings)


def library_model(**settings) -> bytes:
    """A model as someone else would make it."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES), model_writer=model, vocab_size=40, model_type="bpe", minloglevel=2, **settings
    )
    return model.getvalue()


@pytest.mark.parametrize("kind", KINDS)
def test_special_ids_are_the_same_for_every_kind(kind):
    tokenizer = learn(LINES, kind=kind, vocab_size=40)
    assert (PAD_ID, UNK_ID, BOS_ID, EOS_ID) == (0, 1, 2, 3)
    assert tokenizer.pieces([0, 1, 2, 3]) == ["<pad>", "<unk>", "<s>", "</s>"]
    assert tokenizer.ids(SPECIALS) == [0, 1, 2, 3]
    assert tokenizer.kind == kind
    assert tokenizer.vocab_size <= 40


@pytest.mark.parametrize("kind", KINDS)
def test_ids_and_pieces_name_each_other(kind):
    tokenizer = learn(LINES, kind=kind, vocab_size=40)
    everything = list(range(tokenizer.vocab_size))
    assert tokenizer.ids(tokenizer.pieces(everything)) == everything
    assert tokenizer.ids(["no such piece"]) == [UNK_ID]


@pytest.mark.parametrize("kind", KINDS)
def test_typed_specials_never_become_special_ids(kind):
    # learned from as well: they must not become pieces a second time
    tokenizer = learn([*LINES, *[FAKES] * 50], kind=kind, vocab_size=60)
    assert len(set(tokenizer.pieces(range(tokenizer.vocab_size)))) == tokenizer.vocab_size
    (ids,) = tokenizer.encode([FAKES])
    assert ids
    assert not {PAD_ID, BOS_ID, EOS_ID} & set(ids)


@pytest.mark.parametrize("kind", ["bpe", "unigram", "char"])
def test_typed_specials_come_back_as_text(kind):
    tokenizer = learn([*LINES, FAKES], kind=kind, vocab_size=400, byte_fallback=True)
    assert tokenizer.decode(tokenizer.encode([FAKES])) == [FAKES]


@pytest.mark.parametrize("kind", KINDS)
def test_split_and_join_give_the_text_back_even_where_it_is_unknown(kind):
    tokenizer = learn(LINES, kind=kind, vocab_size=40)
    line = f"the cat saw Zoë ☂ in 25. September – {FAKES}"
    (pieces,) = tokenizer.split([line])
    assert len(pieces) == len(tokenizer.encode([line])[0])
    assert UNK_ID in tokenizer.ids(pieces)
    assert tokenizer.join([pieces]) == [line]


@pytest.mark.parametrize("kind", KINDS)
def test_second_round_changes_nothing(kind):
    tokenizer = learn(LINES, kind=kind, vocab_size=40)
    lines = ["  the  cat  ", "25. September", "a – b — c", "ﬁne ½ Ａ", "a\u2028b", "", " ", "\t", "a\x0bb", "a\rb"]
    once = tokenizer.join(tokenizer.split(lines))
    assert len(once) == len(lines)
    assert tokenizer.join(tokenizer.split(once)) == once
    assert once[0] == "the cat"
    assert once[5:8] == ["", "", ""]


def test_blanks_and_the_blank_sign_are_documented_losses():
    tokenizer = learn_bytes()
    assert tokenizer.decode(tokenizer.encode(["  the  cat  ", "a▁b"])) == ["the cat", "a b"]


def test_cr_is_white_space_under_any_rule():
    for normalization in ("nmt_nfkc", "identity"):
        tokenizer = learn_bytes(normalization=normalization)
        assert tokenizer.encode(["the\rcat"]) == tokenizer.encode(["the cat"])
        assert tokenizer.split(["the\rcat"]) == tokenizer.split(["the cat"])


def test_joined_emoji_and_sinhala_keep_their_joiner():
    lines = ["\u0d9a\u0dca\u200d\u0dc2", "\U0001f468\u200d\U0001f469\u200d\U0001f467"]
    tokenizer = learn_bytes()
    assert tokenizer.decode(tokenizer.encode(lines)) == lines


def test_identity_rule_keeps_marks_of_right_to_left_text():
    lines = ["\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", "\u202eabc\u202c", "abc\u200f"]
    tokenizer = learn_bytes(normalization="identity")
    assert tokenizer.decode(tokenizer.encode(lines)) == lines


def test_combining_marks_stay_where_they_are():
    lines = [f"{base}\u0307{end} {base}\u0307" for base in "utv" for end in ("", "e")] * 10
    tokenizer = learn_bytes(lines, normalization="identity", vocab_size=290)
    assert tokenizer.decode(tokenizer.encode(lines)) == lines
    assert ["".join(pieces) for pieces in tokenizer.split(lines)] == ["▁" + line.replace(" ", "▁") for line in lines]


def test_line_separators_in_text_do_no_harm(tmp_path):
    lines = [f"{line}\u2028next\x85line\x0c{line}" for line in LINES]
    tokenizer = learn_bytes(lines, normalization="identity")
    tokenizer.save(tmp_path / "m.model")
    loaded = Tokenizer.load(tmp_path / "m.model")
    assert loaded.encode(lines) == tokenizer.encode(lines)
    assert loaded.decode(loaded.encode(lines)) == lines


def test_byte_pieces_never_break_a_line():
    tokenizer = learn_bytes()
    (the,), (cat,) = tokenizer.ids(["▁the"]), tokenizer.ids(["▁cat"])

    def decode(*pieces: str) -> str:
        return tokenizer.decode([[the, *tokenizer.ids(pieces), cat]])[0]

    assert decode("<0x0A>") == "the cat"
    assert decode("<0x0D>") == "the cat"
    assert decode("<0x0D>", "<0x0A>", "<0x20>") == "the cat"
    assert decode("<0xE2>", "<0x80>", "<0xA8>") == "the\u2028 cat"
    assert decode("<0xE2>", "<0x96>", "<0x81>") == "the cat"  # U+2581 itself
    assert decode("<0xE2>") == "the\ufffd cat"
    assert decode("<0xC3>", "<0xA9>") == "theé cat"


def test_unknown_id_has_one_mark_without_doubled_blanks():
    by_piece = learn(LINES, kind="bpe", vocab_size=200)
    the, blank, cat = by_piece.ids(["▁the", "▁", "▁cat"])
    assert UNK_ID not in (the, blank, cat)
    assert by_piece.decode([[the, blank, UNK_ID, cat], [UNK_ID], [the, UNK_ID]]) == [
        "the <unk> cat",
        "<unk>",
        "the<unk>",
    ]
    by_word = learn(LINES, kind="word", vocab_size=40)
    the, cat = by_word.ids(["▁the", "▁cat"])
    assert by_word.decode([[the, UNK_ID, UNK_ID, cat], [UNK_ID]]) == ["the <unk> <unk> cat", "<unk>"]
    # and the mark stays itself when it is read again
    assert by_piece.join(by_piece.split(["the <unk> cat"])) == ["the <unk> cat"]


def test_decode_leaves_out_padding_and_sentence_marks():
    tokenizer = learn_bytes()
    (ids,) = tokenizer.encode(["the cat"])
    assert tokenizer.decode([[BOS_ID, *ids, EOS_ID, PAD_ID, PAD_ID], [], [EOS_ID]]) == ["the cat", "", ""]


def test_encoding_never_samples():
    tokenizer = learn_bytes()
    assert len({tuple(tokenizer.encode(["the old man sees a young dog"])[0]) for _ in range(20)}) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_same_text_gives_the_same_model(kind):
    one, two = (learn(iter(LINES), kind=kind, vocab_size=40) for _ in range(2))
    other = learn(["something else entirely", *LINES], kind=kind, vocab_size=45)
    assert one.fingerprint == two.fingerprint != other.fingerprint
    assert len(one.fingerprint) == 64


@pytest.mark.parametrize("kind", KINDS)
def test_text_too_small_for_the_vocabulary_gives_a_smaller_one(kind):
    tokenizer = learn(["a b c"], kind=kind, vocab_size=5000)
    assert 4 < tokenizer.vocab_size < 20
    assert UNK_ID not in tokenizer.encode(["a b c"])[0]


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_vocabulary_too_small_for_the_text_is_an_error_that_says_what_is_needed(kind):
    # a, b, c, ▁ and the four specials
    with pytest.raises(DataError) as caught:
        learn(["a b c"], kind=kind, vocab_size=7)
    assert str(caught.value) == (
        "a vocabulary of 7 is too small: this text needs at least 8, one for each character and special symbol; "
        "raise the vocabulary size or lower the character coverage"
    )


@pytest.mark.parametrize("kind", KINDS)
def test_vocabulary_without_room_for_a_piece_is_an_error(kind):
    with pytest.raises(DataError) as caught:
        learn(["a b c"], kind=kind, vocab_size=4)
    assert str(caught.value) == "a vocabulary of 4 is too small: the special symbols take 4"


def test_words_are_not_spelled_as_bytes():
    with pytest.raises(DataError, match="words are not spelled as bytes: byte fallback needs another kind of token"):
        learn(LINES, kind="word", vocab_size=400, byte_fallback=True)


@pytest.mark.parametrize("kind", ["bpe", "unigram", "char"])
def test_vocabulary_without_room_beside_the_bytes_is_an_error(kind):
    with pytest.raises(DataError) as caught:
        learn(["a b c"], kind=kind, vocab_size=260, byte_fallback=True)
    assert str(caught.value) == "a vocabulary of 260 is too small: the special symbols and the bytes take 260"


@pytest.mark.parametrize("lines", [[], [""], [" ", "\t", ""]])
def test_no_text_is_an_error(lines):
    with pytest.raises(DataError) as caught:
        learn(lines, kind="bpe", vocab_size=100)
    assert str(caught.value) == "there is no text to learn a tokenizer from"


def test_long_line_is_learned_from_and_a_longer_one_is_reported():
    reports = []

    def skipped(*report: int) -> None:
        reports.append(report)

    ordinary = "ab " * 3333 + "Ω"
    assert UNK_ID not in learn([ordinary], kind="bpe", vocab_size=30, on_skipped=skipped).encode(["Ω"])[0]
    assert reports == []
    endless = "ab " * 50_000 + "Ω"
    tokenizer = learn([*LINES, endless, endless], kind="bpe", vocab_size=60, on_skipped=skipped)
    assert UNK_ID in tokenizer.encode(["Ω"])[0]
    assert reports == [(2, 65536)]


def test_reserved_sign_of_the_library_costs_no_line():
    assert UNK_ID not in learn(["a ▅ Ω"], kind="char", vocab_size=30).encode(["Ω"])[0]


def test_sample_of_a_large_text_holds_both_of_two_alternating_languages(monkeypatch):
    monkeypatch.setattr(tokenizer_module, "MAX_LEARN_LINES", 100)
    alternating = ["abc" if number % 2 else "xyz" for number in range(1000)]
    tokenizer = learn(alternating, kind="char", vocab_size=30)
    assert UNK_ID not in tokenizer.ids(list("abcxyz"))


def test_saved_tokenizer_is_the_same(tmp_path):
    path = tmp_path / "dir ü, x" / "m, ü.model"
    path.parent.mkdir()
    tokenizer = learn_bytes()
    tokenizer.save(path)
    loaded = Tokenizer.load(path)
    assert (loaded.fingerprint, loaded.vocab_size, loaded.kind) == (tokenizer.fingerprint, tokenizer.vocab_size, "bpe")
    assert loaded.encode(LINES) == tokenizer.encode(LINES)


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        ({}, "pad -1, unk 0, bos 1, eos 2"),
        ({"pad_id": 3, "unk_id": 0, "bos_id": 1, "eos_id": 2}, "pad 3, unk 0, bos 1, eos 2"),
        ({"pad_id": 0, "unk_id": 1, "bos_id": -1, "eos_id": 2}, "pad 0, unk 1, bos -1, eos 2"),
    ],
)
def test_model_with_other_special_ids_is_refused(tmp_path, settings, found):
    path = tmp_path / "m.model"
    path.write_bytes(library_model(**settings))
    with pytest.raises(ModelError) as caught:
        Tokenizer.load(path)
    assert str(caught.value) == (
        f"{path}: has the ids {found}; needed are 0, 1, 2, 3; learn it with mtkit tokenize train"
    )


@pytest.mark.parametrize("content", [b"", b"not a model", b"\0" * 100])
def test_file_that_is_no_model_is_refused(tmp_path, content):
    path = tmp_path / "m.model"
    path.write_bytes(content)
    with pytest.raises(ModelError, match="m.model: "):
        Tokenizer.load(path)


def test_truncated_model_is_refused(tmp_path):
    path = tmp_path / "m.model"
    path.write_bytes(learn_bytes().model[:-200])
    with pytest.raises(ModelError, match="m.model: "):
        Tokenizer.load(path)


def test_missing_model_is_named(tmp_path):
    with pytest.raises(ModelError) as caught:
        Tokenizer.load(tmp_path / "m.model")
    assert str(caught.value) == f"{tmp_path / 'm.model'}: no such file"


def test_shared_tokenizers_are_one_file_and_one_object(tmp_path):
    tokenizer = learn_bytes()
    Tokenizers(tokenizer, tokenizer, shared=True).save(tmp_path / "tokenizer")
    assert [path.name for path in (tmp_path / "tokenizer").iterdir()] == ["joint.model"]
    loaded = Tokenizers.load(tmp_path / "tokenizer")
    assert loaded.shared
    assert loaded.src is loaded.trg
    assert loaded.src.fingerprint == tokenizer.fingerprint


def test_separate_tokenizers_keep_their_sides(tmp_path):
    src, trg = learn_bytes(), learn_bytes(["ein anderer Text"])
    Tokenizers(src, trg, shared=False).save(tmp_path)
    loaded = Tokenizers.load(tmp_path)
    assert not loaded.shared
    assert (loaded.src.fingerprint, loaded.trg.fingerprint) == (src.fingerprint, trg.fingerprint)
    (tmp_path / "trg.model").unlink()
    with pytest.raises(ModelError, match="trg.model: no such file"):
        Tokenizers.load(tmp_path)
    (tmp_path / "src.model").unlink()
    with pytest.raises(ModelError, match="no tokenizer here"):
        Tokenizers.load(tmp_path)
