"""Sentences about the mistakes in a recipe, made from pydantic's error lists.

One form for all: `file:line: key: what is wrong[; cure]`. The line stands there when it is known: a key that is
missing has the line of its section, or none at the top. A value of the command line has `--set key: …`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, get_origin

from pydantic import BaseModel, ValidationError

Key = tuple[str | int, ...]  # ("train", "updates"), or with a list's index ("data", "train", 0)

OVERRIDE = "--set"  # the file of a value from the command line
NAME_PATTERN = r"^\w[\w.-]*$"
UNION_TAGS = ("<files>", "<name>", "<list>")  # in pydantic's error locations: which kind of source was read
MOST_SHOWN = 3

_PAIR_KEYS = ("src", "trg")  # of two files; stands where a source may stand, so no section lists them
_NOT_KEYS = {*UNION_TAGS, "[key]"}

# What other tools call it: too far from our name for a spelling match.
_SYNONYMS = {
    "batch_size": "batch_tokens",
    "beam": "beam_size",
    "early_stopping": "patience",
    "learning_rate": "lr",
    "max_epochs": "epochs",
    "max_steps": "updates",
    "max_updates": "updates",
    "scheduler": "schedule",
    "source": "src",
    "steps": "updates",
    "target": "trg",
    "tgt": "trg",
    "valid": "dev",
    "validation": "dev",
    "warmup_steps": "warmup_updates",
}


class Place(NamedTuple):
    """Where a value was written."""

    file: str  # as the user named it, or OVERRIDE
    line: int  # from 1; 0 = not known
    folder: Path  # where relative paths written there start


Places = dict[Key, Place]


class Mistake(NamedTuple):
    """One thing that is wrong."""

    key: Key
    what: str


def place_of(key: Key, places: Places) -> Place:
    """Where a key was written; for a key that was not, where the nearest section around it was."""
    while key not in places and key:
        key = key[:-1]
    return places[key]


def sentence(place: Place, key: Key, what: str) -> str:
    """The one form of all messages, see the top of this file."""
    dotted = ".".join(map(str, key))
    if place.file == OVERRIDE:
        return f"{OVERRIDE} {dotted}: {what}"
    where = f"{place.file}:{place.line}" if place.line else place.file
    return f"{where}: {dotted}: {what}" if dotted else f"{where}: {what}"


def report(mistakes: list[Mistake], places: Places) -> str:
    """At most MOST_SHOWN mistakes, one a line; unknown keys first, since a misspelt key is also missing somewhere."""
    ordered = sorted(mistakes, key=lambda mistake: not mistake.what.startswith("unknown key"))
    lines = [sentence(place_of(key, places), key, what) for key, what in ordered[:MOST_SHOWN]]
    if len(ordered) > MOST_SHOWN:
        lines.append(f"and {len(ordered) - MOST_SHOWN} more")
    return "\n".join(lines)


def known_keys(section: type[BaseModel], above: Key = ()) -> list[Key]:
    """The keys of a section and of the sections in it."""
    keys: list[Key] = []
    for name, field in section.model_fields.items():
        keys.append((*above, name))
        inner = field.annotation
        if get_origin(inner) is None and isinstance(inner, type) and issubclass(inner, BaseModel):
            keys += known_keys(inner, (*above, name))
    return keys


def mistakes_of(error: ValidationError, tree: Any, known: list[Key], above: Key = ()) -> list[Mistake]:
    """pydantic's errors as mistakes.

    tree: what was validated, a mapping of keys to values; above: the key that holds it; known: all keys of a recipe.
    """
    mistakes: list[Mistake] = []
    suggested: set[Key] = set()
    missing: list[Mistake] = []
    for item in error.errors(include_url=False):
        inside = tuple(part for part in item["loc"] if part not in _NOT_KEYS)
        key: Key = (*above, *inside)
        context, got = item.get("ctx", {}), _shown(item["input"])
        kind = item["type"]
        if kind == "extra_forbidden":
            nearest = nearest_key(key, known)
            if nearest is None:
                mistakes.append(Mistake(key, "unknown key"))
                continue
            suggested.add(nearest)
            name = nearest[-1] if nearest[:-1] == key[:-1] else ".".join(map(str, nearest))
            mistakes.append(Mistake(key, f"unknown key; did you mean '{name}'?"))
        elif kind == "missing" and isinstance(key[-1], int):
            mistakes.append(Mistake(key[:-1], f"value number {key[-1] + 1} is missing"))
        elif kind == "missing":
            missing.append(Mistake(key, "required key is missing"))
        elif kind == "value_error":
            mistakes.append(_relation(key, str(context["error"]), _at(tree, inside), known))
        else:
            mistakes.append(Mistake(key, _expectation(kind, context, got) or f"{_lower(item['msg'])}, got {got}"))
    return mistakes + [mistake for mistake in missing if mistake.key not in suggested]


def nearest_key(key: Key, known: Iterable[Key]) -> Key | None:
    """The key that was probably meant by an unknown one: beside it, or where its name stands in another section."""
    name, above = str(key[-1]), key[:-1]
    known = list(known)
    siblings = [str(other[-1]) for other in known if other[:-1] == above]
    if not siblings and key[0] == "data":
        siblings = list(_PAIR_KEYS)
    elsewhere = [other for other in known if len(other) > 1 and other[:-1] != above]
    meant = _SYNONYMS.get(name, name)
    if meant in siblings:
        return (*above, meant)
    for other in elsewhere:
        if other[-1] == meant:
            return other
    near = difflib.get_close_matches(name, siblings, n=1)
    if near:
        return (*above, near[0])
    by_name = {str(other[-1]): other for other in elsewhere}
    near = difflib.get_close_matches(name, by_name, n=1, cutoff=0.75)
    return by_name[near[0]] if near else None


def _relation(key: Key, message: str, value: Any, known: list[Key]) -> Mistake:
    """A validator's own message; `n_heads: 7 does not …` about a whole section names the key inside."""
    match = re.fullmatch(r"(\w+): (.+)", message, re.DOTALL)
    if match and ((*key, match[1]) in known or (isinstance(value, Mapping) and match[1] in value)):
        return Mistake((*key, match[1]), match[2])
    return Mistake(key, message)


def _expectation(kind: str, context: Mapping[str, Any], got: str) -> str | None:
    """`expected …, got …` for pydantic's error types that a recipe can meet; None for any other."""
    bounds = {"greater_than": ">", "greater_than_equal": ">=", "less_than": "<", "less_than_equal": "<="}
    if kind in bounds:
        limit = context[{">": "gt", ">=": "ge", "<": "lt", "<=": "le"}[bounds[kind]]]
        return f"expected a number {bounds[kind]} {limit:g}, got {got}"
    if kind in ("literal_error", "enum"):
        choices = [choice.strip("'") for choice in re.split(r", | or ", context["expected"])]
        return f"expected one of {', '.join(choices)}; got {got}"
    if kind == "string_type":
        cure = "; put it in quotes" if got[0].isdigit() or got in ("true", "false") else ""
        return f"expected text, got {got}{cure}"
    if kind == "string_pattern_mismatch" and context["pattern"] == NAME_PATTERN:
        return f"expected letters, digits, '_', '-' and '.', got {got}"
    if kind.startswith("union_tag"):
        return f"expected a source of sentence pairs (text, or the keys src and trg), got {got}"
    if kind in ("too_short", "too_long"):
        bound = f"at least {context['min_length']}" if kind == "too_short" else f"at most {context['max_length']}"
        return f"expected {bound} value(s), got {context['actual_length']}"
    if kind == "string_too_short":
        return f"expected text, got {got}"
    for beginning, expected in (
        ("int_", "an integer"),
        ("float_", "a number"),
        ("finite_number", "a finite number"),
        ("bool_", "true or false"),
        ("model_", "keys and values"),
        ("dict_", "keys and values"),
        ("mapping_", "keys and values"),
        ("list_", "a list"),
        ("tuple_", "a list"),
    ):
        if kind.startswith(beginning):
            return f"expected {expected}, got {got}"
    return None


def _shown(value: Any) -> str:
    """A value in a message, as YAML writes it."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return "keys and values"
    if isinstance(value, (list, tuple)):
        return "a list"
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"


def _at(tree: Any, key: Key) -> Any:
    for part in key:
        if not (isinstance(tree, Mapping) and part in tree):
            return None
        tree = tree[part]
    return tree


def _lower(message: str) -> str:
    return message[:1].lower() + message[1:]
