"""Recipe files and overrides as plain values, with the place where each key was written."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.reader import ReaderError

from mtkit.errors import RecipeError
from mtkit.recipe_errors import OVERRIDE, Key, Place, Places, sentence

MOST_NODES = 10_000  # keys and values of one file; anchors that multiply each other end here


def read_file(file: str, children: tuple[Path, ...] = (), said_by: str = "") -> tuple[dict[str, Any], Places]:
    """The keys and values of a file with all that it inherits, and where each was written.

    said_by: `file:line: extends: ` of the file that inherits from this one.
    """
    path = Path(file)
    if path.resolve() in children:
        raise RecipeError(f"{said_by}{file}: inherits from itself")
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise RecipeError(f"{said_by}{file}: no such file") from None
    except OSError as error:
        raise RecipeError(f"{said_by}{file}: {(error.strerror or str(error)).lower()}") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise RecipeError(sentence(Place(file, line, path), (), "not UTF-8")) from None
    tree, places = _read_yaml(text, Place(file, 0, path.parent.resolve()))
    if tree is None:
        raise RecipeError(f"{file}: the recipe is empty")
    if not isinstance(tree, dict):
        raise RecipeError(f"{file}: expected keys and values, got {'a list' if isinstance(tree, list) else repr(tree)}")
    parent = tree.pop("extends", None)
    if parent is None:
        return tree, places
    if not isinstance(parent, str):
        raise RecipeError(sentence(places[("extends",)], ("extends",), "expected one file name"))
    parent_file = os.path.join(os.path.dirname(file), os.path.expanduser(parent))
    said_by = sentence(places[("extends",)], ("extends",), "")
    inherited, inherited_places = read_file(parent_file, (*children, path.resolve()), said_by)
    return merge(inherited, tree), {**inherited_places, **places}


def read_override(text: str) -> tuple[Key, Any, Places]:
    """A `train.updates=100` of the command line: the key, its value, where the value's parts were written."""
    name, equals, value_text = text.partition("=")
    key = tuple(name.strip().split("."))
    if not equals or not all(key):
        raise RecipeError(f"{OVERRIDE} {text}: expected KEY=VALUE, as in train.updates=100")
    value, places = _read_yaml(value_text, Place(OVERRIDE, 0, Path.cwd()), key)
    return key, value, places


def _read_yaml(text: str, origin: Place, above: Key = ()) -> tuple[Any, Places]:
    """YAML 1.2 as dicts with text keys, lists and plain values, and the place of each key below `above`.

    No object is ever constructed; a date stays text, since no key of a recipe takes one.
    """
    yaml = YAML(typ="safe", pure=True)
    places: Places = {above: origin}
    nodes_left = MOST_NODES

    def value_of(node: Node | None, key: Key) -> Any:
        nonlocal nodes_left
        nodes_left -= 1
        if nodes_left < 0:
            raise RecipeError(sentence(origin, above, f"more than {MOST_NODES} keys and values"))
        if isinstance(node, MappingNode):
            mapping: dict[str, Any] = {}
            for name_node, inner in node.value:
                line = name_node.start_mark.line + 1
                if not isinstance(name_node, ScalarNode):
                    raise RecipeError(sentence(origin._replace(line=line), key, "a key must be one word"))
                name = name_node.value  # as written: the year 2016 and the word null are names like any other
                if name in mapping:
                    raise RecipeError(sentence(origin, above, f"line {line}: duplicate key '{name}'"))
                inner_key = (*key, name)
                places[inner_key] = origin._replace(line=line)
                mapping[name] = value_of(inner, inner_key)
            return mapping
        if isinstance(node, SequenceNode):
            items = []
            for index, inner in enumerate(node.value):
                item_key = (*key, index)
                places[item_key] = origin._replace(line=inner.start_mark.line + 1)
                items.append(value_of(inner, item_key))
            return items
        if node is None or node.tag == "tag:yaml.org,2002:timestamp":
            return None if node is None else node.value
        return yaml.constructor.construct_object(node)

    try:
        return value_of(yaml.compose(text), above), places
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = origin if mark is None else origin._replace(line=mark.line + 1)
        what = f"not YAML: {', '.join(filter(None, (error.context, error.problem)))}"
    except ReaderError as error:
        place = origin._replace(line=text.count("\n", 0, error.position) + 1)
        what = f"not YAML: the character U+{error.character:04X} is not allowed"
    except (YAMLError, ValueError, RecursionError) as error:
        place = origin
        what = "nested too deeply" if isinstance(error, RecursionError) else f"not YAML: {error}"
    raise RecipeError(sentence(place, above, what))


def merge(inherited: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Both mappings in one, key by key; what is given wins."""
    merged = dict(inherited)
    for key, value in given.items():
        old = merged.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            # The fields of one backend mean nothing to another: only a model section holds a `type`.
            other_backend = "type" in old and "type" in value and old["type"] != value["type"]
            merged[key] = value if other_backend else merge(old, value)
        else:
            merged[key] = value
    return merged
