"""A study: one table or figure of the textbook chapter, which trainings it needs, and what it makes of them.

A module of `mtkit.reproduce.studies` is one study; the folder listing is the registry. It holds

    TITLE                       one line
    SUBJECT                     what is compared and how, for the head of the report
    trainings(settings)         the models that it needs, without those of other seeds; empty for arithmetic alone
    report(laboratory)          the findings, from the laboratory's trained models or from measurements of its own
    foresee(laboratory)         not in all: the claims that its corpus cannot test, a line each, known without a model
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, cast

from mtkit.errors import RequestError
from mtkit.reproduce import studies
from mtkit.reproduce.findings import Findings

if TYPE_CHECKING:
    from mtkit.reproduce.laboratory import Laboratory

Scale = Literal["toy", "multi30k", "paper"]


# The toy scale's text for claims about length: sentences of 3 to 39 words, all lengths alike often, one test set. The
# sentences are longer than the recipes' and so are the updates: the clock is to leave a slow machine room for all.
TOY_ALL_LENGTHS = (
    "data.train=synthetic:train,pairs=40000,min_words=3,max_words=39",
    "data.dev=synthetic:dev,pairs=300,min_words=3,max_words=39",
    "data.test={all: 'synthetic:test,pairs=600,min_words=3,max_words=39', short: null, long: null}",
    "train.max_minutes=16",
)


# The published systems learned from English-French or from English-German; to be compared, they need one bitext.
WMT_EN_DE = (
    "data.trg=de",
    "data.dev=newstest2013",
    "data.test={newstest2014: newstest2014, newstest2015: null}",
)


class Settings(NamedTuple):
    """What a user decides about a study."""

    scale: Scale
    match: Literal["params", "time"] = "params"  # what the league's contestants have in common


class Training(NamedTuple):
    """One model that a study compares; each seed trains it anew."""

    label: str  # as tables and figures name it
    recipe: str  # file below the recipes' folder, such as toy/rnnsearch.yaml
    overrides: tuple[str, ...] = ()  # KEY=VALUE, as mtkit train --set takes them
    n_parameters: int | None = None  # scale the recipe's widths until there are about so many
    passes: int = 1  # times as many epochs as the other trainings, where --set says how many those have
    member: int = 0  # a training of the same recipe for an ensemble: its seeds are others


class Study(Protocol):
    """What a study's module holds."""

    TITLE: str
    SUBJECT: str

    def trainings(self, settings: Settings) -> list[Training]: ...

    def report(self, laboratory: Laboratory) -> Findings: ...


def foreseen(study: Study, laboratory: Laboratory) -> list[str]:
    """The claims that a study's corpus cannot test, with the reason; nothing where only a model can tell.

    Raises: DataError.
    """
    foresee = getattr(study, "foresee", None)
    return list(foresee(laboratory)) if foresee else []


def available() -> list[str]:
    """The names of all studies, as the command line has them: table-1-1 is studies/table_1_1.py."""
    return sorted(module.name.replace("_", "-") for module in pkgutil.iter_modules(studies.__path__))


def load(name: str) -> Study:
    """The study of a name.

    Raises: RequestError when there is none.
    """
    if name not in available():
        near = difflib.get_close_matches(name, available(), n=1)
        hint = f"; did you mean '{near[0]}'?" if near else f"; there are {', '.join(available())}"
        raise RequestError(f"{name}: no such study{hint}")
    return cast(Study, importlib.import_module(f"{studies.__name__}.{name.replace('-', '_')}"))
