"""The layout holds: who may import whom, and the tree that the README shows."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "mtkit"
EVERYTHING = frozenset(
    [
        "analyze",
        "checkpoint",
        "cli",
        "data",
        "evaluate",
        "models",
        "nn",
        "recipe",
        "reproduce",
        "search",
        "text",
        "train",
    ]
)
MAY_IMPORT = {
    "errors": frozenset(),
    "text": frozenset(),
    "nn": frozenset(),
    "recipe": frozenset(),
    "data": frozenset(["text", "recipe"]),
    "models": frozenset(["nn"]),
    "checkpoint": frozenset(["models", "recipe", "text"]),
    "search": frozenset(
        ["models", "data", "text", "recipe", "checkpoint"]
    ),  # recipe: its search section is the settings
    "evaluate": frozenset(["text"]),
    # data and text: what a model reads is a Batch of token ids
    "analyze": frozenset(["models", "nn", "data", "text", "search", "evaluate", "checkpoint"]),
    "train": EVERYTHING - {"cli", "reproduce", "analyze"},
    "reproduce": EVERYTHING - {"cli"},
    "cli": EVERYTHING,
    "__main__": frozenset(["cli"]),
    "__init__": frozenset(),
}


def part_of(module: str) -> str:
    """mtkit.text.lines -> text; the recipe's files are one part."""
    part = module.split(".")[1] if "." in module else "__init__"
    return "recipe" if part.startswith("recipe") else part


def imports_of(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names if node.module == "mtkit")
    return {name for name in found if name.startswith("mtkit.")}


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_part_imports_only_what_it_may(path: Path) -> None:
    """By the whole name of what it imports."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert not [node.lineno for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level]
    module = ".".join(("mtkit", *path.relative_to(PACKAGE).with_suffix("").parts))
    own = part_of(module)
    allowed = MAY_IMPORT[own] | {own, "errors", "__version__"}
    assert {part_of(name) for name in imports_of(path)} <= allowed


def test_the_tree_in_the_readme_is_the_tree_on_disk() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    tree = re.search(r"```\nmtkit/\n(.*?)```", readme, re.S)
    assert tree, "the README shows the layout in a block that begins with mtkit/"
    shown = set()
    folders: dict[int, str] = {0: ""}  # by the indent of what stands in them
    for line in tree[1].splitlines():
        indent = len(re.match(r"[│├└─ ]*", line)[0])
        name = line[indent:].split()[0]
        place = folders[indent - 4] + name
        folders[indent] = place
        if not name.endswith("/"):
            shown.add(place)
    on_disk = {str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py") if path.name != "__init__.py"}
    assert shown == on_disk | {"__init__.py"}


def test_no_file_is_named_after_nothing() -> None:
    assert not [path for path in PACKAGE.rglob("*.py") if path.stem in {"utils", "helpers", "common", "misc"}]
