"""CLAIMS.md is true: the tests that it names exist, and every claim that needs no training has one."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from mtkit.reproduce import head_patterns, study

TESTS = Path(__file__).resolve().parent
N_CLAIMS = 130


class Claim(NamedTuple):
    number: int
    tier: str
    shown_by: str


def claims() -> list[Claim]:
    rows = re.findall(r"^\| CH-(\d+) \| ([A-Z/]+) \| .+ \| (.+) \|$", (TESTS / "CLAIMS.md").read_text("utf-8"), re.M)
    return [Claim(int(number), tier, shown_by) for number, tier, shown_by in rows]


def named_tests(claim: Claim) -> list[str]:
    return re.findall(r"`([^`]+)`", claim.shown_by)


def functions_of(path: Path) -> list[ast.FunctionDef]:
    """Of one file, read and not run."""
    tree = ast.parse(path.read_text("utf-8"))
    return [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]


def test_every_claim_has_one_row() -> None:
    assert [claim.number for claim in claims()] == list(range(1, N_CLAIMS + 1))


@pytest.mark.parametrize("claim", claims(), ids=lambda claim: f"CH-{claim.number:02d}")
def test_the_named_tests_exist(claim: Claim) -> None:
    for name in named_tests(claim):
        file, _, function = name.partition("::")
        assert (TESTS / file).is_file(), name
        assert function in [test.name for test in functions_of(TESTS / file)], name


def test_every_claim_that_needs_no_training_has_a_test() -> None:
    without = {claim.number for claim in claims() if "U" in claim.tier and not named_tests(claim)}
    assert not without


def test_every_claim_that_a_test_names_has_that_test_in_its_row() -> None:
    listed = {claim.number: named_tests(claim) for claim in claims()}
    unlisted = []
    for path in sorted(TESTS.rglob("test_*.py")):
        if path == Path(__file__).resolve():
            continue
        for test in functions_of(path):
            name = f"{path.relative_to(TESTS)}::{test.name}"
            numbers = re.findall(r"\bCH-(\d+)", ast.get_docstring(test) or "")
            unlisted += [f"CH-{number}: {name}" for number in numbers if name not in listed[int(number)]]
    assert not unlisted


def test_every_claim_that_a_study_judges_names_the_study() -> None:
    judged: set[tuple[int, str]] = set()
    for name in study.available():
        files = [Path(inspect.getfile(study.load(name)))]
        files += [Path(inspect.getfile(head_patterns))] if name == "attention-maps" else []
        numbers = {int(number) for file in files for number in re.findall(r'"CH-(\d+)"', file.read_text("utf-8"))}
        judged |= {(number, name) for number in numbers}
    named = {
        (claim.number, name)
        for claim in claims()
        for names in re.findall(r"mtkit reproduce ([a-z0-9-]+(?:, [a-z0-9-]+)*)", claim.shown_by)
        for name in names.split(", ")
    }
    assert named == judged
