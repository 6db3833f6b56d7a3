"""Lines in, lines out: line ends, encodings, compression, files that lie."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import struct
import threading
from pathlib import Path

import pytest
import zstandard

from mtkit.errors import DataError, RequestError
from mtkit.text.lines import open_output, read_blocks, read_input, read_lines, write_line

# Fourteen lines, the last one without LF; everything but LF is a character of its line.
TRICKY = b"one\nA\xe2\x80\xa8B\nA\xe2\x80\xa9B\nA\xc2\x85B\nA\x0bB\nA\x0cB\nA\x1cB\nA\rB\nA\r\nx\n\nN\x00B\nt\tb\nlast"
TRICKY_LINES = [
    "one",
    "A\u2028B",
    "A\u2029B",
    "A\x85B",
    "A\x0bB",
    "A\x0cB",
    "A\x1cB",
    "A\rB",
    "A",
    "x",
    "",
    "N\x00B",
    "t\tb",
    "last",
]

COMPRESS = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}


@pytest.fixture
def write(tmp_path: Path):
    def write_file(data: bytes, name: str = "text") -> Path:
        path = tmp_path / name
        path.write_bytes(data)
        return path

    return write_file


def test_only_lf_ends_a_line(write):
    assert list(read_lines(write(TRICKY))) == TRICKY_LINES


def test_crlf_and_lf_files_hold_the_same_lines(write):
    assert (
        list(read_lines(write(b"a b\r\n\r\nc\r\n"))) == list(read_lines(write(b"a b\n\nc\n", "lf"))) == ["a b", "", "c"]
    )


def test_one_cr_is_removed_and_no_more(write):
    assert list(read_lines(write(b"a\r\r\nb\r"))) == ["a\r", "b"]


def test_byte_order_mark_is_removed_at_the_start_only(write):
    assert list(read_lines(write(b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n"))) == ["a", "\ufeffb"]


def test_file_of_a_byte_order_mark_holds_no_line(write):
    assert list(read_lines(write(b"\xef\xbb\xbf"))) == []


def test_invalid_utf8_is_replaced_and_reported_by_line(write):
    reports = []
    path = write(b"good\nbad \xff!\ngood\n\xc3\n")
    lines = list(read_lines(path, on_invalid=lambda name, number: reports.append((name, number))))
    assert lines == ["good", "bad \ufffd!", "good", "\ufffd"]
    assert reports == [(str(path), 2), (str(path), 4)]


def test_strict_reading_stops_at_invalid_utf8_and_names_the_line(write):
    path = write(b"good\nbad \xff!\n")
    lines = read_lines(path, strict=True)
    assert next(lines) == "good"
    with pytest.raises(DataError) as caught:
        next(lines)
    assert str(caught.value) == f"{path}:2: invalid UTF-8 (byte 0xff at 5)"


def test_utf16_is_refused(write):
    path = write("Grüße\n".encode("utf-16"))
    with pytest.raises(DataError, match="UTF-16"):
        list(read_lines(path))


@pytest.mark.parametrize("suffix", COMPRESS)
def test_compressed_text_reads_like_plain_text(write, suffix):
    assert list(read_lines(write(COMPRESS[suffix](TRICKY), "text" + suffix))) == TRICKY_LINES


@pytest.mark.parametrize("suffix", COMPRESS)
def test_every_member_of_a_compressed_file_is_read(write, suffix):
    packed = COMPRESS[suffix](b"a\nb\n")
    assert list(read_lines(write(packed + packed, "two" + suffix))) == ["a", "b", "a", "b"]


@pytest.mark.parametrize("suffix", COMPRESS)
def test_compression_is_told_by_content_not_by_name(write, suffix):
    assert list(read_lines(write(COMPRESS[suffix](b"a\nb\n"), "plain.txt"))) == ["a", "b"]


@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.parametrize("keep", [0.3, 0.9])
def test_truncated_file_is_an_error_not_a_shorter_text(write, suffix, keep):
    packed = COMPRESS[suffix](b"".join(b"line %d\n" % number for number in range(1000)))
    path = write(packed[: int(len(packed) * keep)], "cut" + suffix)
    with pytest.raises(DataError) as caught:
        list(read_lines(path))
    assert str(caught.value) == f"{path}: the compressed file is cut short"


@pytest.mark.parametrize("suffix", COMPRESS)
def test_second_member_that_is_garbage_is_an_error(write, suffix):
    path = write(COMPRESS[suffix](b"a\n") + b"garbage that is no member", "bad" + suffix)
    with pytest.raises(DataError) as caught:
        list(read_lines(path))
    assert str(caught.value).startswith(f"{path}: the compressed file is damaged (")


@pytest.mark.parametrize("suffix", COMPRESS)
def test_plain_text_with_a_compressed_name_is_an_error(write, suffix):
    path = write(b"plain\n", "lie" + suffix)
    with pytest.raises(DataError) as caught:
        list(read_lines(path))
    assert str(caught.value) == f"{path}: is not compressed as its name says; rename it if it is plain text"


def test_padding_after_a_member_is_allowed(write):
    assert list(read_lines(write(gzip.compress(b"a\n") + b"\0" * 512, "padded.gz"))) == ["a"]


def test_skippable_zstd_frame_comes_first_in_parallel_zstd(write):
    skippable = struct.pack("<II", 0x184D2A50, 4) + b"size"
    assert list(read_lines(write(skippable + COMPRESS[".zst"](b"a\nb\n"), "p.zst"))) == ["a", "b"]


def test_text_that_begins_like_bzip2_is_text(write):
    assert list(read_lines(write(b"BZh9 is not a member\n"))) == ["BZh9 is not a member"]


def test_missing_file_and_folder_are_named(tmp_path):
    with pytest.raises(DataError) as caught:
        next(read_lines(tmp_path / "nosuch.de"))
    assert str(caught.value) == f"{tmp_path / 'nosuch.de'}: no such file"
    with pytest.raises(DataError) as caught:
        next(read_lines(tmp_path))
    assert str(caught.value) == f"{tmp_path}: cannot be read (Is a directory)"


class OneByOne(io.RawIOBase):
    """A stream that gives what it is told, one piece a read."""

    def __init__(self, *pieces: bytes) -> None:
        self.pieces = list(pieces)

    def read1(self, _size: int = -1) -> bytes:
        return self.pieces.pop(0) if self.pieces else b""


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_blocks_hold_the_lines_of_the_file_wherever_reads_end(size):
    pieces = [TRICKY[start : start + size] for start in range(0, len(TRICKY), size)]
    assert sum(read_blocks(OneByOne(*pieces)), []) == TRICKY_LINES


def test_block_comes_before_more_is_read():
    stream = OneByOne(b"a\nb\nbeg", b"in\n", b"", b"never read")
    blocks = read_blocks(stream)
    assert next(blocks) == ["a", "b"]
    assert len(stream.pieces) == 3
    assert next(blocks) == ["begin"]
    assert next(blocks, None) is None


def test_line_typed_into_a_pipe_comes_out_at_once():
    read_end, write_end = os.pipe()
    with os.fdopen(read_end, "rb") as reader, os.fdopen(write_end, "wb", buffering=0) as writer:
        blocks = read_blocks(reader)
        writer.write(b"first\n")
        answer = []
        # if read_blocks waited for the end of the input, this thread would never finish
        thread = threading.Thread(target=lambda: answer.append(next(blocks)), daemon=True)
        thread.start()
        thread.join(timeout=60)
        assert answer == [["first"]]
        writer.write(b"second")
        writer.close()
        assert list(blocks) == [["second"]]


def test_blocks_are_no_longer_than_asked():
    blocks = list(read_blocks(io.BytesIO(b"".join(b"%d\n" % number for number in range(5))), max_lines=2))
    assert blocks == [["0", "1"], ["2", "3"], ["4"]]


def test_blocks_count_lines_for_reports():
    reports = []
    stream = io.BytesIO(b"\xef\xbb\xbfa\nb\n\xff\nc\n\xfe")
    blocks = list(read_blocks(stream, max_lines=2, name="in", on_invalid=lambda *report: reports.append(report)))
    assert blocks == [["a", "b"], ["\ufffd", "c"], ["\ufffd"]]
    assert reports == [("in", 3), ("in", 5)]
    with pytest.raises(DataError, match=r"^<stdin>:2: invalid UTF-8"):
        list(read_blocks(io.BytesIO(b"a\n\xff\n"), strict=True))


def test_one_string_is_written_as_one_line():
    stream = io.BytesIO()
    for line in ("Grüße", "a\nb\r\nc\rd", "A\u2028B", "", "half \ud83d"):
        write_line(stream, line)
    assert stream.getvalue().decode("utf-8") == "Grüße\na b  c d\nA\u2028B\n\nhalf ?\n"


def test_output_appears_when_complete(tmp_path):
    path = tmp_path / "out"
    path.write_bytes(b"old")
    with open_output(path) as stream:
        stream.write(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["out"]


def test_output_that_fails_leaves_what_was_there(tmp_path):
    path = tmp_path / "out"
    path.write_bytes(b"old")
    with pytest.raises(RuntimeError), open_output(path) as stream:
        stream.write(b"new")
        raise RuntimeError
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["out"]


def test_output_follows_a_link_and_writes_to_a_device(tmp_path):
    (tmp_path / "target").write_bytes(b"old")
    (tmp_path / "link").symlink_to("target")
    with open_output(tmp_path / "link") as stream:
        stream.write(b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_bytes() == b"new"
    with open_output("/dev/null") as stream:
        stream.write(b"gone")
    assert not Path("/dev/null").is_file()


def test_output_that_cannot_be_written_is_named_before_the_work(tmp_path):
    with pytest.raises(RequestError) as caught, open_output(tmp_path / "no" / "out"):
        pytest.fail("the work began")
    assert str(caught.value) == f"{tmp_path / 'no' / 'out'}: cannot be written (No such file or directory)"
    with pytest.raises(RequestError, match="Is a directory"), open_output(tmp_path):
        pytest.fail("the work began")


def test_no_output_file_means_standard_output(capfdbinary):
    with open_output(None) as stream:
        write_line(stream, "Grüße")
    assert capfdbinary.readouterr().out == "Grüße\n".encode()


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_compressed_text_in_a_pipe_is_read_as_in_a_file(pack):
    """`mtkit translate MODEL < test.en.gz` translated the bytes."""
    text = "".join(f"Zeile {number}\n" for number in range(5000))
    stream = io.BufferedReader(io.BytesIO(pack(text.encode())))
    assert [line for block in read_blocks(stream) for line in block] == text.splitlines()
    cut = io.BufferedReader(io.BytesIO(pack(text.encode())[:-20]))
    with pytest.raises(DataError, match="^<stdin>: the compressed file is"):
        list(read_blocks(cut))


def test_a_pipe_with_a_name_gives_each_line_as_it_comes(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    blocks = read_input(str(pipe), strict=False, on_invalid=lambda *_: None, max_lines=2000)
    answer = []
    thread = threading.Thread(target=lambda: answer.append(next(blocks)), daemon=True)
    thread.start()
    with pipe.open("wb", buffering=0) as writer:
        writer.write(b"first\n")
        thread.join(timeout=60)
        assert answer == [["first"]]
        writer.write(b"second\n")
    assert list(blocks) == [["second"]]


def test_what_was_written_before_the_end_is_kept_where_that_is_wanted(tmp_path):
    kept = []
    (tmp_path / "out").write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt), open_output(tmp_path / "out", on_kept=kept.append) as stream:
        stream.write(b"one line\n")
        raise KeyboardInterrupt
    assert kept == [tmp_path / "out.part"]
    assert kept[0].read_bytes() == b"one line\n"
    assert (tmp_path / "out").read_bytes() == b"old"
    with pytest.raises(KeyboardInterrupt), open_output(tmp_path / "other", on_kept=kept.append):
        raise KeyboardInterrupt
    assert sorted(os.listdir(tmp_path)) == ["out", "out.part"]


def test_a_file_that_is_written_anew_keeps_its_mode(tmp_path):
    path = tmp_path / "out"
    path.write_bytes(b"old")
    path.chmod(0o600)
    with open_output(path) as stream:
        stream.write(b"new")
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_dash_is_standard_output_and_a_compressed_name_is_refused(tmp_path, monkeypatch, capfdbinary):
    monkeypatch.chdir(tmp_path)
    with open_output("-") as stream:
        write_line(stream, "line")
    assert capfdbinary.readouterr().out == b"line\n"
    with (
        pytest.raises(RequestError, match=r"^out\.gz: output is not compressed; leave out \.gz"),
        open_output("out.gz"),
    ):
        pytest.fail("the work began")
    assert list(tmp_path.iterdir()) == []
