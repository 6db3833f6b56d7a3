"""Conduct a study: show the plan, train what is missing, measure, write the report. Repeated, it goes on."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from mtkit.errors import DivergedError, RequestError
from mtkit.recipe import DataSection, FilePair
from mtkit.reproduce import study as studies
from mtkit.reproduce.corpus import SCORED_ON, learned_from, text_name
from mtkit.reproduce.laboratory import Laboratory, Place
from mtkit.reproduce.published import PUBLICATIONS, Cost
from mtkit.reproduce.report import Origin, Trained, write_report, write_summary
from mtkit.text.lines import open_output
from mtkit.train.experiment import train
from mtkit.train.log import minutes_text, read_metrics, to_stderr


class Conducted(NamedTuple):
    """How a study ended."""

    report: Path | None  # None: it was stopped before there was one
    exit_status: int = 0


def conduct(name: str, laboratory: Laboratory, *, budget_minutes: float | None = None) -> Conducted:
    """One study from its plan to its report; what an earlier command has finished is not done again.

    budget_minutes: for all trainings that are missing, together; each gets an equal share, if its recipe takes longer.

    Raises: RequestError for a study that does not exist or cannot be done at this scale, and what training raises.
    """
    study = studies.load(name)
    trainings = study.trainings(laboratory.settings)
    places = laboratory.places(trainings)
    _check_differences(places)
    for training in trainings[:1]:
        laboratory.test_set(training)
    missing = [place for place in places if not place.is_finished]
    share = None if budget_minutes is None or not missing else budget_minutes / len(missing)
    _check_share(missing, share)
    # One that an earlier budget has cut short goes on only if this one has more for it.
    missing = [place for place in missing if not place.is_finished_within(_limit(place, share))]
    to_stderr(plan_text(study.TITLE, places, share))
    for claims in studies.foreseen(study, laboratory) if missing else ():
        to_stderr(f"this corpus cannot test {claims}")
    begun = time.monotonic()
    for number, place in enumerate(missing, start=1):
        left = _minutes_left(missing[number - 1 :], places, share)
        about = f", {_how_sure(places)} {minutes_text(left)} of training left" if left is not None else ""
        to_stderr(f"\ntraining {number} of {len(missing)}: {place.name}{about}")
        exit_status = _train(laboratory, place, share)
        if exit_status is not None:
            n_done = len(places) - len(missing) + number - 1
            to_stderr(f"{name}: stopped; {n_done} of {len(places)} trainings are finished. The same command goes on")
            return Conducted(None, exit_status)
    to_stderr(f"\n{name}: measuring")
    findings = study.report(laboratory)
    findings = findings._replace(
        notes=[*findings.notes, *_shorter_than_recipes(laboratory, places), *_early_ends(places)]
    )
    origin = Origin(
        # The league has two reports, which stand side by side.
        f"{name}-time" if laboratory.settings.match == "time" else name,
        study.TITLE,
        study.SUBJECT,
        laboratory.settings.scale,
        len(laboratory.seeds) if trainings else 0,
        [
            Trained(place.name, str(place.run), laboratory.facts(place.training, place.seed), place.end)
            for place in places
        ],
        (time.monotonic() - begun) / 60,
        time.strftime("%Y-%m-%d"),
        corpus=_corpus(laboratory, places),
        overrides=laboratory.overrides,
    )
    report = write_report(findings, origin, laboratory.folder / origin.name)
    write_summary(laboratory.folder)
    return Conducted(report)


def _check_differences(places: Sequence[Place]) -> None:
    """Refuse overrides that take away what the trainings of a study differ in.

    Raises: RequestError.
    """
    found: dict[Path, Place] = {}
    sets_share = any(key.startswith("data.share=") for place in places for key in place.training.overrides)
    if sets_share and len({place.recipe.data.share for place in places}) == 1:
        raise RequestError("--set: data.share is what trainings of this study differ in; give all less with data.train")
    for place in places:
        other = found.setdefault(place.run, place)
        if other is not place:
            raise RequestError(
                f"--set: makes {other.training.label} and {place.training.label} one and the same model; their "
                "difference is what this study measures"
            )


def _corpus(laboratory: Laboratory, places: Sequence[Place]) -> list[str]:
    """The texts of a study's trainings and the test set that they are scored on, with their sizes, each once."""

    def sized(source: str | FilePair, data: DataSection) -> str:
        return f"{text_name(source, data)}, {laboratory.n_pairs(data, source):,} pairs"

    data = {place.training: place.recipe.data for place in places}
    sets = [
        f"{SCORED_ON}{name}: {sized(each.test[name], each)}"
        for training, each in data.items()
        for name in [laboratory.test_set(training)]
    ]
    return [
        *learned_from([(training.label, each) for training, each in data.items()], sized),
        *dict.fromkeys(sets),
    ]


def _shorter_than_recipes(laboratory: Laboratory, places: Sequence[Place]) -> list[str]:
    """What a reader must know of trainings that end before those of the recipe files."""
    shorter, beginning = {}, {}
    for place in places:
        label, usual = place.training.label, laboratory.recipe_file(place.training).train.updates
        done, warmup = _trained(place)[0], place.recipe.train.warmup_updates
        own = place.recipe.train.updates or done
        if usual is not None and 0 < own < usual:
            shorter[label] = f"{label} {own:,} updates instead of {usual:,}"
        if 0 < done < 2 * warmup:
            beginning[label] = f"{label} {warmup:,} of {done:,} updates"
    notes = []
    if shorter:
        notes.append(
            f"Trained for less than their recipe files say: {'; '.join(shorter.values())}. More may change the order."
        )
    if beginning:
        notes.append(
            f"The warm-up took half of the training or more: {'; '.join(beginning.values())}. What is measured of "
            "these says little."
        )
    if learning := laboratory.still_learning(*dict.fromkeys(place.training for place in places)):
        notes.append(
            f"Still learning at the end, dev BLEU having risen by a quarter or more since the look before: "
            f"{learning}. More updates may change their places in the order."
        )
    return notes


def _check_share(missing: Sequence[Place], share: float | None) -> None:
    """Refuse to cut a training that ends by the clock alone: its minutes are what it is.

    Raises: RequestError.
    """
    for place in missing:
        limit, minutes = _limit(place, share), place.recipe.train.max_minutes
        if place.recipe.train.ends_by == "max_minutes" and limit != minutes:
            raise RequestError(
                f"--budget-minutes: leaves {limit:.3g} minutes for {place.name}, which trains for {minutes:g}; say "
                "how long each trains with --set train.max_minutes=M instead"
            )


def plan_text(title: str, places: Sequence[Place], share: float | None) -> str:
    """What a study will do, a line for each training."""
    if not places:
        return f"{title}\nno training needed"
    width = max(len(place.name) for place in places)
    lines = [title]
    for place in places:
        state = "finished" if place.is_finished else "begun" if read_metrics(place.run) else "missing"
        minutes = None if place.is_finished else _expected(place, places, share)
        at_most = f", {_how_sure(places)} {minutes_text(minutes)}" if minutes is not None else ""
        cost = None if place.is_finished else _published_cost(place)
        published = f", in the paper {_cost_text(cost)}" if cost else ""
        lines.append(f"  {place.name:<{width}}  {place.recipe.name:<24} {state}{at_most}{published}")
    left = _minutes_left([place for place in places if not place.is_finished], places, share)
    if left:
        lines.append(f"{_how_sure(places)} {minutes_text(left)} of training, then translating and scoring")
    return "\n".join(lines)


def _train(laboratory: Laboratory, place: Place, share: float | None) -> int | None:
    """Train one model, or go on with it; the exit status if it was stopped before its end."""
    limit = _limit(place, share)
    recipe = laboratory.place(place.training, place.seed, max_minutes=limit).recipe
    cut_after, diverged = None, False
    try:
        outcome = train(recipe, place.run, device=laboratory.device)
    except DivergedError as error:
        # That a system cannot be trained so is a finding: its best checkpoint, or what it knew last, stands for it.
        to_stderr(f"mtkit: warning: {place.name}: diverged: {error}")
        end, diverged = f"diverged: {error}", True
    else:
        if outcome.interrupted:
            return outcome.exit_status
        end = outcome.reason
        if outcome.out_of_time and recipe.train.ends_by != "max_minutes":
            cut_after = limit
    place.record.parent.mkdir(parents=True, exist_ok=True)
    with open_output(place.record) as stream:
        facts = {
            "training": place.training.label,
            "seed": place.seed,
            "end": end,
            "cut_after": cut_after,
            "diverged": diverged,
        }
        stream.write((json.dumps(facts, ensure_ascii=False, indent=1) + "\n").encode())
    return None


def _limit(place: Place, share: float | None) -> float | None:
    """Minutes that a training may take: its recipe's or its share of the budget, whichever is less."""
    limits = [each for each in (share, place.recipe.train.max_minutes) if each is not None]
    return min(limits, default=None)


def _early_ends(places: Sequence[Place]) -> list[str]:
    """What a reader must know of trainings that did not come to the end of their recipes."""
    cut = [f"{place.name} ({place.cut_after:g} min)" for place in places if place.cut_after is not None]
    notes = []
    if cut:
        notes.append(
            f"Stopped by the clock before the last update that the recipe asks for: {', '.join(cut)}. A slower or "
            "busier machine trains them less."
        )
    return notes + [
        f"{place.name} {place.end.partition(';')[0]}. The best checkpoint "
        "before that, or else the last, is what was measured; one that gives no finite probability translates nothing."
        for place in places
        if place.has_diverged
    ]


def _minutes_left(missing: Sequence[Place], places: Sequence[Place], share: float | None) -> float | None:
    """Minutes of the trainings that are missing; None where one of them could take any time."""
    each = [_expected(place, places, share) for place in missing]
    known = [minutes for minutes in each if minutes is not None]
    return sum(known) if len(known) == len(each) else None


def _expected(place: Place, places: Sequence[Place], share: float | None) -> float | None:
    """Minutes that a training may still take: until as many as another seed of it took, or as its tokens take at the
    pace of the other trainings, at most until its recipe's or its share; None where nothing is known.
    """
    finished = [(other, *_trained(other)) for other in places if other.is_finished]
    alike = [minutes for other, _, minutes in finished if other.training == place.training]
    section = place.recipe.train
    if not alike and section.updates is not None:
        paces = [minutes / (updates * _batch_tokens(other)) for other, updates, minutes in finished if updates]
        alike = [section.updates * _batch_tokens(place) * statistics.median(paces)] if paces else []
    elif not alike and section.epochs is not None:
        texts = [minutes / _passes(other) for other, updates, minutes in finished if updates and _passes(other)]
        alike = [_passes(place) * statistics.median(texts)] if texts else []
    limit = _limit(place, share)
    ends = [*alike, *([] if limit is None else [limit])]
    return max(0.0, min(ends) - _trained(place)[1]) if ends else None


def _batch_tokens(place: Place) -> int:
    """Tokens of an update."""
    return place.recipe.train.batch_tokens * place.recipe.train.accumulate


def _passes(place: Place) -> float:
    """How often a training that ends by epochs reads the whole text."""
    return (place.recipe.train.epochs or 0.0) * place.recipe.data.share


def _how_sure(places: Sequence[Place]) -> str:
    """What stands before expected minutes: while nothing is finished they are the recipes' limits."""
    return "about" if any(place.is_finished for place in places) else "at most"


def _trained(place: Place) -> tuple[int, float]:
    """Updates and minutes that a training has had."""
    metrics = read_metrics(place.run)
    updates = max((int(entry["update"]) for entry in metrics), default=0)
    return updates, max((float(entry["minutes"]) for entry in metrics), default=0.0)


def check_scale(laboratory: Laboratory, name: str, *, agreed: bool) -> None:
    """Hold a study of the published size back until the user has agreed to its cost.

    Raises: RequestError, which tells the cost.
    """
    if laboratory.settings.scale != "paper" or agreed:
        return
    study = studies.load(name)
    places = laboratory.places(study.trainings(laboratory.settings))
    costs = [_published_cost(place) for place in places if not place.is_finished]
    if not costs:
        return
    known = [cost.gpu_days for cost in costs if cost is not None]
    unknown = f" (of {len(costs) - len(known)} there is no figure)" if len(known) < len(costs) else ""
    raise RequestError(
        f"{name}: --scale paper trains {len(costs)} models of the published sizes on their corpora; such trainings "
        f"took the papers' authors {sum(known):.0f} GPU-days together{unknown}, on GPUs of their years; add --yes to "
        "start\n" + plan_text(study.TITLE, places, None)
    )


def _published_cost(place: Place) -> Cost | None:
    """What the training took that a recipe repeats, or varies."""
    return PUBLICATIONS[place.recipe.paper].cost if place.recipe.paper else None


def _cost_text(cost: Cost) -> str:
    gpus = "one GPU" if cost.n_gpus == 1 else f"{cost.n_gpus} GPUs"
    return f"{gpus}, {cost.days:.1f} days ({cost.where})"
