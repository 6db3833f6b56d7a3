"""The one place that reads and writes lines of text: encodings, line ends, compression.

A line ends at LF and nowhere else: U+2028, U+0085, form feeds and NUL are characters of the line, and so is
a CR unless it stands right before the LF. Everything is read and written as bytes, so that the locale
(LC_ALL=C in a container) changes nothing.
"""

from __future__ import annotations

import bz2
import io
import itertools
import lzma
import os
import re
import shutil
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from mtkit.errors import DataError, RequestError

OnInvalid = Callable[[str, int], None]  # (file name, line number from 1)

COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
_BOM = b"\xef\xbb\xbf"
_UTF16_BOMS = (b"\xff\xfe", b"\xfe\xff")
_LINE_BREAKS = re.compile("[\r\n]")
# Small, because one compressed byte may stand for thousands of bytes of text.
_CHUNK_BYTES = 1 << 14


def read_lines(path: str | Path, *, strict: bool = False, on_invalid: OnInvalid | None = None) -> Iterator[str]:
    """The lines of a UTF-8 text file, plain or compressed, one string each, without their line ends.

    A byte order mark at the start is removed. Invalid UTF-8 becomes U+FFFD and is reported to `on_invalid`.
    Compression (gzip, bzip2, xz, zstd; also several members in a row) is told by content.

    Raises: DataError for a file that cannot be read, is cut short or is not what its name says, and, if
    `strict`, for invalid UTF-8.
    """
    name = str(path)
    with _open_text(name) as stream:
        number = 0
        try:
            for number, raw in enumerate(stream, start=1):
                if number == 1:
                    raw = _without_bom(raw, name)
                    if not raw:
                        continue
                yield _decode(raw, name, number, strict, on_invalid)
        except (OSError, zlib.error, lzma.LZMAError) as error:
            raise DataError(f"{name}: cannot be read after line {number} ({_reason(error)})") from error


def read_blocks(
    stream: BinaryIO,
    *,
    strict: bool = False,
    on_invalid: OnInvalid | None = None,
    max_lines: int = 2000,
    name: str = "<stdin>",
) -> Iterator[list[str]]:
    """The lines of a stream in blocks of at most `max_lines`, each as soon as it is there.

    A block holds the complete lines that one read returned: a line typed into a pipe comes out at once, a
    file comes in full blocks. What a line is and what is decompressed, see `read_lines`; `name` and a line number
    name invalid UTF-8. Of a stream that cannot be looked into before it is read nothing is decompressed.

    Raises: DataError for damaged compressed text and, if `strict`, for invalid UTF-8.
    """
    peek = getattr(stream, "peek", None)
    decompressor = _decompressor(peek(10)[:10]) if peek else None
    if decompressor is not None:
        stream = io.BufferedReader(_Members(stream, decompressor, name), 1 << 16)
    # A buffered stream's read() would wait until it has all it was asked for.
    read = getattr(stream, "read1", stream.read)
    number = 0
    rest: list[bytes] = []  # pieces of a line whose end has not come yet
    while chunk := read(1 << 18):
        *ended, last = chunk.split(b"\n")
        if not ended:
            rest.append(last)
            continue
        ended[0] = b"".join([*rest, ended[0]])
        rest = [last] if last else []
        for start in range(0, len(ended), max_lines):
            block = []
            for raw in ended[start : start + max_lines]:
                number += 1
                raw = _without_bom(raw, name) if number == 1 else raw
                block.append(_decode(raw, name, number, strict, on_invalid))
            yield block
    last_line = b"".join(rest)
    if number == 0:
        last_line = _without_bom(last_line, name)
    if last_line:
        yield [_decode(last_line, name, number + 1, strict, on_invalid)]


def read_input(file: str | None, *, strict: bool, on_invalid: OnInvalid, max_lines: int) -> Iterator[list[str]]:
    """The blocks of a command's input: of a file, or of standard input for None and '-'; compressed or not.

    Standard input and pipes with a name give each block as soon as it is there.

    Raises: DataError as `read_lines` and `read_blocks` do.
    """
    if file is None or file == "-":
        yield from read_blocks(sys.stdin.buffer, strict=strict, on_invalid=on_invalid, max_lines=max_lines)
        return
    if Path(file).is_fifo() or Path(file).is_char_device():
        with _open(file) as pipe:
            yield from read_blocks(pipe, strict=strict, on_invalid=on_invalid, max_lines=max_lines, name=file)
        return
    lines = read_lines(file, strict=strict, on_invalid=on_invalid)
    while block := list(itertools.islice(lines, max_lines)):
        yield block


def write_line(stream: BinaryIO, line: str) -> None:
    """Write one line as UTF-8: one string in, one line out; LF and CR inside it become blanks."""
    stream.write(_LINE_BREAKS.sub(" ", line).encode("utf-8", "replace") + b"\n")


def print_text(text: str) -> None:
    """Write text to standard output as UTF-8, whatever the locale says."""
    with open_output(None) as stream:
        for line in text.split("\n"):
            write_line(stream, line)


@contextmanager
def open_output(path: str | Path | None, *, on_kept: Callable[[Path], None] | None = None) -> Iterator[BinaryIO]:
    """A binary stream to write results to: standard output for None and '-', otherwise the file `path`.

    The file is written aside and renamed when complete, so that an interrupted command leaves what was there
    before. With `on_kept`, what an interrupted command has written stays as PATH.part, and it is called with that
    name. Devices and pipes are written directly.

    Raises: RequestError when the file cannot be written, or is named as if it were compressed.
    """
    if path is None or str(path) == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    target = Path(os.path.realpath(path))  # a link stays a link; what it points to is replaced
    if target.exists() and not target.is_file() and not target.is_dir():
        with open(target, "wb") as device:
            yield device
        return
    if target.suffix in COMPRESSED:
        raise RequestError(f"{path}: output is not compressed; leave out {target.suffix}, or pipe it to a compressor")
    aside = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        if target.is_dir():
            raise IsADirectoryError(None, "Is a directory")
        stream = open(aside, "wb")  # noqa: SIM115 - closed below, before the rename
    except OSError as error:
        raise RequestError(f"{path}: cannot be written ({_reason(error)})") from error
    try:
        with stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        if target.exists():
            shutil.copymode(target, aside)
        os.replace(aside, target)
    except BaseException:
        with suppress(OSError):
            if on_kept is not None and aside.stat().st_size:
                kept = target.with_name(f"{target.name}.part")
                os.replace(aside, kept)
                on_kept(kept)
            else:
                aside.unlink()
        raise


def _decode(raw: bytes, name: str, number: int, strict: bool, on_invalid: OnInvalid | None) -> str:
    """One line of bytes as a string without its LF or CR LF."""
    raw = raw.removesuffix(b"\n").removesuffix(b"\r")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        if strict:
            byte = raw[error.start]
            raise DataError(f"{name}:{number}: invalid UTF-8 (byte 0x{byte:02x} at {error.start + 1})") from error
        if on_invalid is not None:
            on_invalid(name, number)
        return raw.decode("utf-8", "replace")


def _without_bom(first_line: bytes, name: str) -> bytes:
    if first_line.startswith(_UTF16_BOMS):
        raise DataError(f"{name}: is UTF-16 text; convert it to UTF-8 (iconv -f UTF-16 -t UTF-8)")
    return first_line.removeprefix(_BOM)


def _reason(error: BaseException) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__


def _open_text(name: str) -> BinaryIO:
    """The bytes of a file, decompressed if its content says so.

    Raises: DataError.
    """
    stream = _open(name)
    try:
        decompressor = _decompressor(stream.peek(10)[:10])
    except BaseException:
        stream.close()
        raise
    if decompressor is not None:
        return io.BufferedReader(_Members(stream, decompressor, name), 1 << 16)
    if name.endswith(COMPRESSED):
        stream.close()
        raise DataError(f"{name}: is not compressed as its name says; rename it if it is plain text")
    return stream


def _open(name: str) -> io.BufferedReader:
    """Raises: DataError."""
    try:
        return io.BufferedReader(io.FileIO(name), _CHUNK_BYTES)
    except FileNotFoundError as error:
        raise DataError(f"{name}: no such file") from error
    except OSError as error:
        raise DataError(f"{name}: cannot be read ({_reason(error)})") from error


def _decompressor(start: bytes) -> Callable[[], Any] | None:
    """What makes a decompressor for one member of a file that starts like this; None for plain text."""
    if start.startswith(b"\x1f\x8b"):
        return lambda: zlib.decompressobj(wbits=31)  # 31 = gzip header and check sum
    # "BZh" and a digit could begin a text; six more bytes open a block or end an empty file
    if start.startswith(b"BZh") and start[4:10] in (b"1AY&SY", b"\x17\x72\x45\x38\x50\x90"):
        return bz2.BZ2Decompressor
    if start.startswith(b"\xfd7zXZ\x00"):
        return lzma.LZMADecompressor
    # the second number opens a skippable frame, which parallel zstd writes first
    if start.startswith(b"\x28\xb5\x2f\xfd") or (start[1:4] == b"\x2a\x4d\x18" and start[0] >> 4 == 5):
        import zstandard

        return lambda: zstandard.ZstdDecompressor().decompressobj()
    return None


class _Members(io.RawIOBase):
    """The text of a compressed file: its members one after another, each of which must be complete.

    The file objects of bz2, lzma and zstandard end quietly at bytes that start no member, or in the middle of
    a zstd frame: a damaged corpus would become a shorter one.
    """

    def __init__(self, stream: BinaryIO, new_member: Callable[[], Any], name: str) -> None:
        self._stream = stream
        self._new_member = new_member
        self._member: Any = None
        self._name = name
        self._text = b""
        self._packed = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._text:
            if not self._packed:
                self._packed = self._stream.read(_CHUNK_BYTES)
                if not self._packed:
                    if self._member is not None:
                        raise DataError(f"{self._name}: the compressed file is cut short")
                    return 0
            if self._member is None:
                # zeros after a member are padding, to a tape block (gzip) or to four bytes (xz)
                self._packed = self._packed.lstrip(b"\0")
                if not self._packed:
                    continue
                self._member = self._new_member()
            try:
                self._text = self._member.decompress(self._packed)
            except Exception as error:  # each of the four libraries has its own class
                raise DataError(f"{self._name}: the compressed file is damaged ({_reason(error)})") from error
            self._packed = self._member.unused_data if self._member.eof else b""
            if self._member.eof:
                self._member = None
        size = min(len(buffer), len(self._text))
        buffer[:size] = self._text[:size]
        self._text = self._text[size:]
        return size

    def close(self) -> None:
        self._stream.close()
        super().close()
