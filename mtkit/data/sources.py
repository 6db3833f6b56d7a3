"""Every way in for sentence pairs; one shape out: a `Bitext`, which yields pairs of strings.

The grammar of a recipe's source strings stands in `mtkit.recipe`. Text formats are read here and not by the
loaders of `datasets`, which take quotes, lone CRs and date-like strings for something else than text.
"""

from __future__ import annotations

import difflib
import hashlib
import inspect
import itertools
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from mtkit.errors import DataError
from mtkit.recipe import FilePair
from mtkit.text.lines import COMPRESSED, read_lines

if TYPE_CHECKING:
    from mtkit.text.grammar import GrammarPair

_SURROGATES = re.compile("[\ud800-\udfff]")
_LINE_BREAKS = re.compile("[\r\n]")
_COMPRESSED_SUFFIX = re.compile("|".join(re.escape(suffix) + "$" for suffix in COMPRESSED))


class Bitext(ABC):
    """Sentence pairs from one source, read anew by each call of `pairs`."""

    def __init__(self, name: str, files: tuple[Path, ...] = ()) -> None:
        self.name = name  # as a message names it
        self.files = files
        self.invalid = 0  # lines with invalid UTF-8 that the last pairs() has seen so far

    @abstractmethod
    def _pairs(self) -> Iterator[tuple[str, str]]: ...

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Source and target lines, in the order of the source.

        Raises: DataError for what is no pair, named by file and line.
        """
        self.invalid = 0
        return self._pairs()

    def alignments(self) -> list[list[tuple[int, int]]] | None:
        """The right word links of each pair, (source word, target word) from 0, where the source knows them.

        They count the words of `mtkit.text.syntax.split_words`.
        """
        return None

    def fingerprint(self) -> str:
        """A hash of the content: equal for equal pairs in equal files, wherever they lie."""
        digest = hashlib.sha256(self._format().encode("utf-8", "surrogateescape"))
        for path in self.files:
            # the sizes tell where one file ends and the next begins
            digest.update(f"\0{path.stat().st_size}\0".encode())
            with open(path, "rb") as stream:
                while chunk := stream.read(1 << 20):
                    digest.update(chunk)
        return digest.hexdigest()

    @abstractmethod
    def _format(self) -> str:
        """What, beside the bytes of the files, decides on the pairs."""

    def _lines(self, path: Path) -> Iterator[str]:
        return read_lines(path, on_invalid=self._count_invalid)

    def _count_invalid(self, _name: str, _line: int) -> None:
        self.invalid += 1

    def _clean(self, text: str) -> str:
        """A string from JSON or a table as a line: no line breaks, no halves of surrogate pairs."""
        if _SURROGATES.search(text):
            self.invalid += 1
            text = _SURROGATES.sub("\ufffd", text)
        return _LINE_BREAKS.sub(" ", text)


class AlignedFiles(Bitext):
    """Two files, line by line."""

    def _pairs(self) -> Iterator[tuple[str, str]]:
        src_path, trg_path = self.files
        src_lines, trg_lines = self._lines(src_path), self._lines(trg_path)
        for number, (src, trg) in enumerate(itertools.zip_longest(src_lines, trg_lines)):
            if src is None or trg is None:
                # one line of the longer side has just been taken
                n_src = number + (src is not None) + sum(1 for _ in src_lines)
                n_trg = number + (trg is not None) + sum(1 for _ in trg_lines)
                raise DataError(
                    f"{src_path} and {trg_path}: unequal line counts, {n_src} and {n_trg}; "
                    "the two sides must match line by line"
                )
            yield src, trg

    def _format(self) -> str:
        return "aligned"


class TsvFile(Bitext):
    """Tab-separated columns, source first, more than two are ignored; quotes are plain characters."""

    def _pairs(self) -> Iterator[tuple[str, str]]:
        (path,) = self.files
        for number, line in enumerate(self._lines(path), start=1):
            columns = line.split("\t")
            if len(columns) < 2:
                if not line.strip():
                    yield "", ""  # a blank line is an empty pair, for the filters to count
                    continue
                raise DataError(f"{path}:{number}: expected two tab-separated columns, found one")
            yield columns[0], columns[1]

    def _format(self) -> str:
        return "tsv"


class JsonlFile(Bitext):
    """A JSON object a line, with the language codes as keys, alone or inside `translation`."""

    def __init__(self, name: str, path: Path, src: str, trg: str) -> None:
        super().__init__(name, (path,))
        self._keys = (src, trg)

    def _pairs(self) -> Iterator[tuple[str, str]]:
        (path,) = self.files
        for number, line in enumerate(self._lines(path), start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise DataError(f"{path}:{number}: not JSON ({error})") from error
            if not isinstance(row, dict):
                raise DataError(f"{path}:{number}: expected a JSON object, got {type(row).__name__}")
            src, trg = _columns(row, self._keys, f"{path}:{number}")
            yield self._clean(src), self._clean(trg)

    def _format(self) -> str:
        return "jsonl\0" + "\0".join(self._keys)


class HubDataset(Bitext):
    """A Hugging Face dataset, by name or as a local folder."""

    def __init__(self, name: str, location: _Location, src: str, trg: str) -> None:
        super().__init__(name)
        self._keys = (location.columns.get("src", src), location.columns.get("trg", trg))
        self._dataset = _load_dataset(name, location, src, trg)
        if not len(self._dataset):
            raise DataError(f"{name}: holds no sentence pair")
        try:
            _columns(self._dataset[0], self._keys, f"{name}: row 1")
        except DataError as error:
            hint = "" if location.columns else "; name other columns with ,src=COLUMN,trg=COLUMN behind it"
            raise DataError(f"{error}{hint}") from error

    def _pairs(self) -> Iterator[tuple[str, str]]:
        for number, row in enumerate(self._dataset, start=1):
            src, trg = _columns(row, self._keys, f"{self.name}: row {number}")
            yield self._clean(src), self._clean(trg)

    def _format(self) -> str:
        """The pairs themselves: the library's own fingerprint says where a folder lies and when it was written."""
        digest = hashlib.sha256()
        for src, trg in self._pairs():
            digest.update(f"{src}\n{trg}\n".encode())
        return f"hub\0{digest.hexdigest()}"


class Synthetic(Bitext):
    """Pairs from the embedded grammar, made once: a run goes over its bitext several times, and making is slow."""

    def __init__(self, name: str, split: str, numbers: Mapping[str, int], *, reverse: bool) -> None:
        super().__init__(name)
        self._reverse = reverse
        self._split = split
        self._numbers = dict(numbers)
        self._made: list[GrammarPair] | None = None

    def _pairs(self) -> Iterator[tuple[str, str]]:
        for pair in self._all():
            yield (pair.trg, pair.src) if self._reverse else (pair.src, pair.trg)

    def alignments(self) -> list[list[tuple[int, int]]] | None:
        return [
            sorted((trg, src) if self._reverse else (src, trg) for src, trg in pair.alignment) for pair in self._all()
        ]

    def _all(self) -> list[GrammarPair]:
        if self._made is None:
            from mtkit.text.grammar import generate

            self._made = list(generate(split=self._split, **self._numbers))
        return self._made

    def _format(self) -> str:
        from mtkit.text import grammar, lexicon, syntax

        # another version of the grammar makes other sentences
        code = hashlib.sha256()
        for module in (grammar, lexicon, syntax):
            code.update(inspect.getsource(module).encode())
        return json.dumps(["synthetic", self._split, self._reverse, sorted(self._numbers.items()), code.hexdigest()])


class Thinned(Bitext):
    """A share of another bitext's pairs, spread evenly over it: of a tenth, every tenth pair."""

    def __init__(self, whole: Bitext, share: float) -> None:
        super().__init__(f"{whole.name} ({share:.3g} of it)", whole.files)
        self._whole, self._share = whole, share

    def _pairs(self) -> Iterator[tuple[str, str]]:
        for row, pair in enumerate(self._whole.pairs()):
            self.invalid = self._whole.invalid
            if int((row + 1) * self._share) > int(row * self._share):
                yield pair

    def _format(self) -> str:
        return json.dumps(["thinned", self._share, self._whole._format()])


def open_bitext(source: FilePair | str, *, src: str, trg: str, root: str | Path) -> Bitext:
    """The bitext that a recipe's source names; relative paths start from `root`.

    Looks at once whether there is something to read, and reads no more than the first line.

    Raises: DataError, which names the file that is missing or empty, or the part of the source that is wrong.
    """
    root = Path(root)
    if isinstance(source, FilePair):
        files = (root / source.src, root / source.trg)
        _check_files(files)
        return AlignedFiles(f"{source.src}, {source.trg}", files)
    if source.startswith("synthetic:"):
        return _open_synthetic(source, src, trg)
    if source.startswith("hub:"):
        return _open_hub(source, src, trg, root)
    plain = _COMPRESSED_SUFFIX.sub("", source)
    if plain.endswith((".tsv", ".jsonl")):
        path = root / source
        _check_files((path,))
        return TsvFile(source, (path,)) if plain.endswith(".tsv") else JsonlFile(source, path, src, trg)
    sides = (_find_side(root / f"{source}.{src}"), _find_side(root / f"{source}.{trg}"))
    _check_files(sides)
    return AlignedFiles(source, sides)


def needs_languages(source: str) -> bool:
    """Whether the language codes decide which pairs `source` names: all kinds but TSV and the grammar."""
    if source.startswith("hub:"):
        return not all(f",{side}=" in source for side in ("src", "trg"))
    return not source.startswith("synthetic:") and not _COMPRESSED_SUFFIX.sub("", source).endswith(".tsv")


def check_aligned(bitext: Bitext) -> int:
    """Read the whole bitext and return its number of pairs.

    Raises: DataError when the two sides differ in length, a line is no pair, or there is no pair at all.
    """
    pairs = sum(1 for _ in bitext.pairs())
    if pairs == 0:
        raise DataError(f"{bitext.name}: holds no sentence pair")
    return pairs


def _find_side(path: Path) -> Path:
    """The file itself, or the same with the name of a compression; `path` if there is none of them."""
    candidates = [path, *(path.with_name(path.name + suffix) for suffix in COMPRESSED)]
    return next((candidate for candidate in candidates if candidate.exists()), path)


def _check_files(files: tuple[Path, ...]) -> None:
    for path in files:
        if not path.exists():
            raise DataError(f"{path}: no such file")
        if path.is_dir():
            raise DataError(f"{path}: is a folder, not a file")
        # what is not a regular file (a pipe) can be read only once
        if path.is_file() and next(read_lines(path), None) is None:
            raise DataError(f"{path}: the file is empty")


def _columns(row: Mapping[str, Any], keys: tuple[str, str], where: str) -> tuple[str, str]:
    """Both texts of a row.

    Raises: DataError for a missing key or a value that is no text.
    """
    texts = row.get("translation", row)
    if not isinstance(texts, Mapping):
        texts = row
    for key in keys:
        if key not in texts:
            raise DataError(f"{where}: no key '{key}'; found {', '.join(map(str, texts)) or 'none'}")
        if not isinstance(texts[key], str):
            raise DataError(f"{where}: '{key}' is not text but {type(texts[key]).__name__}")
    return texts[keys[0]], texts[keys[1]]


_SYNTHETIC_SPLITS = ("train", "dev", "test")
_SYNTHETIC_PAIRS = {"train": 20_000, "dev": 500, "test": 500}
_SYNTHETIC_KEYS = ("pairs", "min_words", "max_words", "seed")


def _open_synthetic(source: str, src: str, trg: str) -> Synthetic:
    """`synthetic:SPLIT[,pairs=N][,min_words=N][,max_words=N][,seed=N]`, in either direction."""
    if (src, trg) not in (("en", "de"), ("de", "en")):
        raise DataError(f"{source}: the grammar is English and German (en, de); the recipe says {src} and {trg}")
    split, *settings = source.removeprefix("synthetic:").split(",")
    if split not in _SYNTHETIC_SPLITS:
        raise DataError(f"{source}: expected one of {', '.join(_SYNTHETIC_SPLITS)} after 'synthetic:'; got '{split}'")
    numbers = {"pairs": _SYNTHETIC_PAIRS[split]}
    for setting in settings:
        key, _, value = setting.partition("=")
        if key not in _SYNTHETIC_KEYS:
            near = difflib.get_close_matches(key, _SYNTHETIC_KEYS, n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"known are {', '.join(_SYNTHETIC_KEYS)}"
            raise DataError(f"{source}: unknown key '{key}'; {hint}")
        if not re.fullmatch("[0-9]+", value):
            raise DataError(f"{source}: {key}: expected a whole number, got '{value}'")
        numbers[key] = int(value)
    if numbers["pairs"] == 0:
        raise DataError(f"{source}: pairs: must be at least 1")
    return Synthetic(source, split, numbers, reverse=src == "de")


class _Location(NamedTuple):
    """Where a `hub:` source is."""

    name: str
    folder: Path | None  # of a dataset that lies here
    split: str | None
    columns: dict[str, str]  # src and trg, where they are not named by the language codes
    config: str | None


_HUB_KEYS = ("src", "trg", "config")


def _open_hub(source: str, src: str, trg: str, root: Path) -> HubDataset:
    """`hub:NAME[:SPLIT][,src=COLUMN][,trg=COLUMN][,config=NAME]`; a folder's name may hold colons and commas."""
    location, found = source.removeprefix("hub:"), {}
    while not (root / location).is_dir() and (match := re.fullmatch(r"(.+),(\w+)=([^,]*)", location)):
        location, key, value = match.groups()
        if key not in _HUB_KEYS or not value or key in found:
            known = ", ".join(f"{each}=…" for each in _HUB_KEYS)
            raise DataError(f"{source}: '{key}={value}' is unknown or there twice; known are {known}")
        found[key] = value
    config = found.pop("config", None)
    if (root / location).is_dir():
        return HubDataset(source, _Location(location, root / location, None, found, config), src, trg)
    location, _, split = location.rpartition(":") if ":" in location else (location, "", "")
    folder = root / location if (root / location).is_dir() else None
    return HubDataset(source, _Location(location, folder, split or None, found, config), src, trg)


def _has_data(folder: Path) -> bool:
    """Whether files in it hold a dataset whatever else lies beside them."""
    return any(path.suffix in (".parquet", ".arrow", ".json", ".jsonl") for path in folder.rglob("*"))


def _load_dataset(name: str, location: _Location, src: str, trg: str) -> Any:
    """One split as a `datasets.Dataset`; `train` if none is named and there are several.

    Raises: DataError with the library's reason.
    """
    import datasets

    folder, split, config = location.folder, location.split, location.config
    is_saved = folder is not None and any((folder / file).exists() for file in ("state.json", "dataset_dict.json"))
    if folder is not None and not is_saved and not _has_data(folder) and (table := next(folder.rglob("*.tsv"), None)):
        raise DataError(
            f"{name}: holds {table.name}; name that file as the source: hub: would read its quotes as CSV's"
        )
    try:
        if is_saved:
            loaded = datasets.load_from_disk(str(folder))
        elif folder is not None:
            loaded = datasets.load_dataset(str(folder), config)
        else:
            # a dataset of many language pairs has a configuration for each, such as de-en
            if config is None:
                configs = datasets.get_dataset_config_names(location.name)
                config = next((pair for pair in (f"{src}-{trg}", f"{trg}-{src}") if pair in configs), None)
            loaded = datasets.load_dataset(location.name, config)
    except Exception as error:  # files, network, formats: the library has no common class
        raise DataError(
            f"{name}: cannot be loaded ({str(error).splitlines()[0] if str(error) else error!r})"
        ) from error
    if isinstance(loaded, datasets.Dataset):
        if split is not None and loaded.split is not None and str(loaded.split) != split:
            raise DataError(f"{name}: no split '{split}'; found {loaded.split}")
        return loaded
    wanted = split or ("train" if len(loaded) > 1 else next(iter(loaded)))
    if wanted not in loaded:
        raise DataError(f"{name}: no split '{wanted}'; found {', '.join(loaded)}")
    return loaded[wanted]
