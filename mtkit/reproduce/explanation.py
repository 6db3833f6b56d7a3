"""A recipe, setting by setting: its value, where that comes from, and what the published system has."""

from __future__ import annotations

import itertools
import os
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mtkit import models
from mtkit.errors import RecipeError
from mtkit.recipe import load_recipe, written_places
from mtkit.recipe_errors import OVERRIDE, Place, Places, sentence
from mtkit.reproduce.published import PUBLICATIONS, Publication, Setting

WIDTH = 110  # columns of the text
_WIDEST = 36  # columns; a longer value pushes its own line to the right, not the whole table


class Row(NamedTuple):
    """One setting."""

    key: str
    value: Any  # as in a recipe; None with `missing`
    origin: str  # `file:line`, `--set`, `preset NAME` or `default`
    published: Setting | None
    departs: bool  # from what is published
    reason: str  # of a departure, where one is known
    missing: bool = False  # published, but this recipe's backend has no such setting


class Explanation(NamedTuple):
    """All of a recipe's settings in the order of its sections."""

    name: str
    file: str
    publication: Publication | None
    rows: list[Row]


def explain(path: str | Path, overrides: Sequence[str] = (), *, every: bool = False) -> Explanation:
    """The settings that the recipe writes or its paper names; with `every`, those left at their defaults too.

    Raises: RecipeError for a recipe that cannot be used, or one that names an unknown paper.
    """
    recipe = load_recipe(path, overrides, parse_model=models.parse_config)
    preset = load_recipe(path, overrides).model.get("preset")
    places = written_places(path, overrides)
    publication = _publication(recipe.paper, places)
    published = {setting.key: setting for setting in publication.settings} if publication else {}
    from_preset = models.load(recipe.model["type"]).PRESETS[preset].model_fields_set if preset else set()

    rows = []
    for key, value in _settings(recipe.model_dump(mode="json")):
        name = ".".join(key)
        if key in places:
            origin = _shown_place(places[key])
        else:
            origin = f"preset {preset}" if key[0] == "model" and key[1] in from_preset else "default"
        if every or key in places or name in published:
            rows.append(_row(name, value, origin, published.pop(name, None)))
        if key == ("model", "type") and preset:
            rows.append(Row("model.preset", preset, _shown_place(places["model", "preset"]), None, False, ""))
    rows += [Row(setting.key, None, "", setting, True, "", missing=True) for setting in published.values()]
    sections = ["name", "paper", *(name for name, _ in itertools.groupby(rows, _section))]
    rows.sort(key=lambda row: sections.index(_section(row)))  # stable: what is missing goes to its section's end
    return Explanation(recipe.name, str(path), publication, rows)


def _publication(name: str | None, places: Places) -> Publication | None:
    if name is None:
        return None
    if name not in PUBLICATIONS:
        what = f"expected one of {', '.join(PUBLICATIONS)}; got '{name}'"
        raise RecipeError(sentence(places["paper",], ("paper",), what))
    return PUBLICATIONS[name]


def _settings(section: dict[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, value in section.items():
        if isinstance(value, dict) and value:
            yield from _settings(value, (*above, name))
        else:
            yield (*above, name), value


def _row(key: str, value: Any, origin: str, setting: Setting | None) -> Row:
    departs = setting is not None and value != as_in_a_recipe(setting.value)
    reason = ""
    if setting is not None and departs:
        # The reason that is on record is that of the recipe, not of whoever overrides it.
        reason = "by --set" if origin == OVERRIDE else setting.deviation
    return Row(key, value, origin, setting, departs, reason)


def as_in_a_recipe(value: Any) -> Any:
    """A published value as a dumped recipe holds it."""
    return list(value) if isinstance(value, tuple) else value


def _shown_place(place: Place) -> str:
    return OVERRIDE if place.file == OVERRIDE else f"{place.file}:{place.line}"


def _section(row: Row) -> str:
    return row.key.split(".")[0]


def as_json(explanation: Explanation) -> dict[str, Any]:
    """The explanation as plain values."""
    publication = explanation.publication
    facts: dict[str, Any] = {"name": explanation.name, "file": explanation.file}
    if publication:
        facts["paper"] = {"title": publication.title, "url": publication.url, "notes": list(publication.notes)}
    facts["settings"] = []
    for row in explanation.rows:
        entry: dict[str, Any] = {"key": row.key, "value": row.value, "from": row.origin or None}
        if row.published:
            entry["paper"] = {"value": as_in_a_recipe(row.published.value), "where": row.published.where}
            entry["departs"] = row.departs
            if row.departs:
                entry["reason"] = row.reason or None
        facts["settings"].append(entry)
    return facts


def render(explanation: Explanation) -> str:
    """The explanation as text: a table by section, then the departures with their reasons, then the paper's notes."""
    publication = explanation.publication
    lines = [f"{explanation.name}: {explanation.file}"]
    if publication:
        lines += [
            f"paper: {publication.title}",
            f"       {publication.url}",
            "= as in the paper, ≠ not as in the paper",
        ]
    table = [(_short_key(row), *_cells(row, explanation.file)) for row in explanation.rows]
    header = ("", "value", "from", "paper" if publication else "")
    widths = [max(len(cell) for cell in column if len(cell) <= _WIDEST) for column in zip(header, *table, strict=True)]
    for section, group in itertools.groupby(zip(explanation.rows, table, strict=True), lambda pair: _section(pair[0])):
        in_section = list(group)
        if "." in in_section[0][0].key:
            lines += ["", _line((section, *header[1:]), (widths[0] + 2, *widths[1:]))]
            lines += ["  " + _line(cells, widths) for _, cells in in_section]
        else:
            lines += [_line(cells, (widths[0] + 2, *widths[1:])) for _, cells in in_section if section != "name"]
    departures = [row for row in explanation.rows if row.departs]
    if departures:
        lines += ["", f"departures from the paper: {len(departures)}"]
        for row in departures:
            lines += _wrapped(_departure(row))
    if publication and publication.notes:
        lines += ["", "beside the settings"]
        for note in publication.notes:
            lines += _wrapped(note)
    return "\n".join(lines)


def _cells(row: Row, recipe_file: str) -> tuple[str, str, str]:
    """Value, origin and paper; a file is named as seen from the recipe's folder."""
    origin = row.origin
    if os.sep in origin:
        origin = os.path.relpath(origin, os.path.dirname(recipe_file) or ".")
    paper = ""
    if row.published:
        value = shown_value(as_in_a_recipe(row.published.value))
        paper = f"≠ {value} ({row.published.where})" if row.departs else f"= {row.published.where}"
    return "-" if row.missing else shown_value(row.value), origin, paper


def _departure(row: Row) -> str:
    assert row.published is not None
    published = f"{shown_value(as_in_a_recipe(row.published.value))} ({row.published.where})"
    if row.missing:
        return f"{row.key}: {published} in the paper; the model of this recipe has no such setting"
    return f"{row.key}: {shown_value(row.value)}, not {published}: {row.reason or 'no reason is on record'}"


def _short_key(row: Row) -> str:
    return row.key.partition(".")[2] or row.key


def shown_value(value: Any) -> str:
    """A value of a recipe on one line; repeated items of a list are counted."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list):
        runs = [(shown_value(item), len(list(run))) for item, run in itertools.groupby(value)]
        return f"[{', '.join(item if n == 1 else f'{item} x {n}' for item, n in runs)}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {shown_value(item)}' for key, item in value.items())}}}"
    return "null" if value is None else str(value)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)
