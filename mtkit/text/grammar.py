"""The synthetic bitext: an English → German grammar, a seed, sentences of any length, each with its word alignment.

`generate` draws syntax trees (`syntax.py`) over real words (`lexicon.py`) from a seed. It needs no download, knows the
right answer and the word alignment of every sentence, and stretches sentences by relative clauses, subordinate clauses
and coordination. Names come from an open list: one surname in five never stands in the training split.

What is left out on purpose: English that has two readings with different German (you, do they mean him or it, an
adverb after two verbs), so that an English sentence determines its German.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator
from functools import cache
from itertools import accumulate

from mtkit.errors import RequestError
from mtkit.text import lexicon, syntax
from mtkit.text.lexicon import Adjective, Noun, Verb
from mtkit.text.syntax import (
    Clause,
    GrammarPair,
    Join,
    Name,
    Np,
    Phrase,
    Pp,
    Predicate,
    Pronoun,
    Relative,
    Segment,
    Sentence,
    Sub,
    There,
    Wh,
    split_words,
    translate_tree,
)

__all__ = ["GrammarPair", "generate", "split_of", "split_words", "translate_tree"]

SPLITS = ("train", "dev", "test")

_NOUNS = tuple(lexicon.NOUNS.values())
_FRAME_WEIGHTS = {"i": 2.0, "a": 5.0, "d": 1.5, "da": 2.0, "p": 2.5, "ap": 0.6, "dir": 1.2, "loc": 0.7}
_VERBS_BY_FRAME = {
    frame: tuple(verb for verb in lexicon.VERBS.values() if verb.frame == frame) for frame in lexicon.FRAMES
}
_PRESENT_WORD = {"present": "n", "past": "p", "future": "f"}
_POSSESSIVE = {"I": "my", "we": "our", "he": "his", "she": "her", "they": "their"}
_OWNABLE = frozenset({"small", "clothing", "vehicle", "pet", "readable", "lived", "kin"})
# After my, this, Anna's … a restrictive relative clause would sound wrong.
_BEFORE_RELATIVE = ("the", "a", "every", "two", "three", "many", "")
_OWNERS = tuple(name for name in lexicon.WOMEN + lexicon.MEN if name[-1] not in "sxz")


def generate(
    *, split: str, pairs: int, min_words: int = 3, max_words: int = 20, seed: int = 1
) -> Iterator[GrammarPair]:
    """`pairs` different sentence pairs with English lengths (blank-separated words) spread over [min_words, max_words].

    The same arguments always give the same pairs. The splits share no sentence, whatever the seeds and lengths.

    Raises:
        RequestError: arguments that make no sense; or fewer than `pairs` sentences of these lengths could be found.
    """
    if split not in SPLITS:
        raise RequestError(f"synthetic: split: expected one of {', '.join(SPLITS)}; got '{split}'")
    if pairs < 0:
        raise RequestError(f"synthetic: pairs: expected 0 or more, got {pairs}")
    if min_words < 2:
        raise RequestError(f"synthetic: min_words: the shortest sentence has 2 words, got {min_words}")
    if max_words < min_words:
        raise RequestError(f"synthetic: max_words: {max_words} is less than min_words {min_words}")
    return _generate(split, pairs, min_words, max_words, seed)


def split_of(src: str) -> str:
    """The split that an English sentence belongs to, by its hash: 8 of 10 to train, one each to dev and test."""
    return _split_of_digest(_digest(src))


def _digest(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def _split_of_digest(digest: int) -> str:
    return ("dev", "test")[digest % 10] if digest % 10 < 2 else "train"


def _generate(split: str, pairs: int, min_words: int, max_words: int, seed: int) -> Iterator[GrammarPair]:
    rng = random.Random(f"{split} {seed} {min_words} {max_words}")
    maker = _Maker(rng, known_names_only=split == "train")
    lengths = list(range(min_words, max_words + 1))
    # A sentence of another split, or one seen before, is varied a few times before a new one is drawn.
    variations = 2 if split == "train" else 30
    seen: set[int] = set()
    turn: list[int] = []
    while len(seen) < pairs:
        if not lengths:
            raise RequestError(
                f"synthetic: only {len(seen)} of {pairs} different sentences of {min_words} to {max_words} words "
                f"could be made for {split}; ask for fewer pairs or a wider range"
            )
        turn = turn or rng.sample(lengths, len(lengths))
        length = turn.pop()
        for _ in range(400):
            found = maker.new_sentence(length, split, seen, variations)
            if found:
                yield found
                break
        else:
            lengths.remove(length)


# --- What goes with what ----------------------------------------------------------------------------------------------


@cache
def _nouns_of(kinds: frozenset[str]) -> tuple[Noun, ...]:
    return tuple(noun for noun in _NOUNS if noun.kinds & kinds)


@cache
def _adjectives_of(noun: Noun) -> tuple[Adjective, ...]:
    return tuple(adjective for adjective in lexicon.ADJECTIVES.values() if adjective.kinds & noun.kinds)


@cache
def _verbs_for(kinds: frozenset[str] | None, frame: str) -> tuple[Verb, ...]:
    """The verbs of a frame that a subject of these kinds (None: any subject) may have."""
    return tuple(verb for verb in _VERBS_BY_FRAME[frame] if kinds is None or verb.subjects & kinds)


@cache
def _frames_for(kinds: frozenset[str] | None) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """The frames for which there are such verbs, with their cumulative weights."""
    frames = tuple(frame for frame in _FRAME_WEIGHTS if _verbs_for(kinds, frame))
    return frames, tuple(accumulate(_FRAME_WEIGHTS[frame] for frame in frames))


@cache
def _verbs_taking(noun: Noun) -> tuple[tuple[Verb, str], ...]:
    """(verb, slot) for every place of a verb that the noun can fill as an object."""
    found = []
    for verb in lexicon.VERBS.values():
        if verb.frame in ("a", "ap") and verb.objects & noun.kinds:
            found.append((verb, "accusative"))
        elif verb.frame in ("d", "da") and verb.objects & noun.kinds:
            found.append((verb, "dative"))
        elif verb.frame == "p" and verb.objects & noun.kinds:
            found.append((verb, "prep"))
        if verb.frame == "da" and verb.targets & noun.kinds:
            found.append((verb, "accusative"))
    return tuple(found)


_PERSON = frozenset({"person"})


def _kinds(phrase: Phrase) -> frozenset[str]:
    if isinstance(phrase, Np):
        return phrase.noun.kinds
    if isinstance(phrase, Relative):
        return phrase.owned.noun.kinds if phrase.owned else phrase.noun.kinds
    if isinstance(phrase, Pronoun) and phrase.noun:
        return phrase.noun.kinds
    if isinstance(phrase, Join):
        return frozenset.intersection(*map(_kinds, phrase.items))
    return _PERSON


def _pronoun_for(phrase: Phrase) -> Pronoun | None:
    """The pronoun that takes the phrase up, or None where he, she or it would be in doubt."""
    if isinstance(phrase, Pronoun):
        return phrase
    if isinstance(phrase, Join):
        return Pronoun("they")
    if isinstance(phrase, Name):
        return Pronoun({"m": "he", "f": "she"}[phrase.sex]) if phrase.sex else None
    if not isinstance(phrase, Np) or phrase.det in ("no", "every", ""):
        return None
    if phrase.plural:
        return Pronoun("they", phrase.noun)
    if "person" not in phrase.noun.kinds:
        return Pronoun("it", phrase.noun)
    return Pronoun({"m": "he", "f": "she"}[phrase.noun.sex], phrase.noun) if phrase.noun.sex else None


def _is_none(phrase: Phrase) -> bool:
    """No dog, no man: out of place in questions and in clauses of time."""
    return isinstance(phrase, Np) and phrase.det == "no"


def _possessive_of(subject: Phrase) -> str:
    """The possessive that can only mean the subject; "" if there is none."""
    if isinstance(subject, Relative):
        if subject.owned or not subject.noun.kinds & _PERSON:
            return ""
        return "their" if subject.plural else {"m": "his", "f": "her", "": ""}[subject.noun.sex]
    if not _kinds(subject) & _PERSON or isinstance(subject, (Wh, There)):
        return ""
    if isinstance(subject, Np) and not subject.plural and not subject.noun.sex:
        return ""
    if isinstance(subject, Np) and subject.plural:
        return "their"
    if isinstance(subject, Np):
        return {"m": "his", "f": "her"}[subject.noun.sex]
    pronoun = _pronoun_for(subject)
    return _POSSESSIVE.get(pronoun.en, "") if pronoun else ""


def _noun_phrases(clause: Clause) -> list[Np]:
    """All noun phrases of a clause, those inside relative clauses included."""
    found: list[Np] = []

    def visit(part: object) -> None:
        if isinstance(part, Np):
            found.append(part)
            visit(part.of)
            if part.relative:
                found.extend(_noun_phrases(part.relative))
        elif isinstance(part, Join):
            for item in part.items:
                visit(item)
        elif isinstance(part, Pp):
            visit(part.np)
        elif isinstance(part, Predicate):
            visit(part.than)

    for part in (clause.subject, clause.dative, clause.accusative, clause.prep, clause.predicate, clause.time,
                 clause.company, clause.place):  # fmt: skip
        visit(part)
    if clause.then:
        found.extend(_noun_phrases(clause.then))
    return found


def _only_thing(clause: Clause) -> Np | None:
    """The one noun phrase of a clause that "it" can mean, if there is exactly one."""
    things = [np for np in _noun_phrases(clause) if not np.plural and not np.noun.kinds & _PERSON]
    return things[0] if len(things) == 1 else None


def _has_adverbial_at_the_end(clause: Clause) -> bool:
    return bool(
        clause.manner
        or clause.company
        or (clause.place and clause.front != "place")
        or (clause.time and clause.front != "time")
    )


def _last_phrase(clause: Clause) -> Np | None:
    """The noun phrase that ends the clause in both languages and may take a relative clause, if there is one."""
    if clause.complement or clause.then or _has_adverbial_at_the_end(clause):
        return None
    phrase: Phrase | None
    if clause.prep:
        phrase = clause.prep.np
    elif clause.negated and not syntax.takes_kein(clause.accusative):
        return None  # nicht would follow it
    else:
        phrase = clause.accusative or clause.dative
    if isinstance(phrase, Np) and phrase.det != "which":
        return phrase
    return None


# --- Drawing trees ----------------------------------------------------------------------------------------------------


class _Maker:
    """Draws sentences of a wanted length. Lengths count English words; commas do not count."""

    def __init__(self, rng: random.Random, known_names_only: bool) -> None:
        self.rng = rng
        self.known_names_only = known_names_only

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    # Names and noun phrases

    def surname(self) -> str:
        while True:
            choice = self.rng.choice
            name = choice(lexicon.SURNAME_STARTS) + choice(lexicon.SURNAME_MIDDLES) + choice(lexicon.SURNAME_ENDS)
            if not self.known_names_only or _digest(name) % 5:
                return name

    def name(self) -> Name:
        sex = self.rng.choice("mf")
        kind = self.rng.random()
        if kind < 0.5:
            first = self.rng.choice(lexicon.MEN if sex == "m" else lexicon.WOMEN)
            return Name(first, first, sex)
        if kind < 0.65:
            full = self.rng.choice(lexicon.MEN if sex == "m" else lexicon.WOMEN) + " " + self.surname()
            return Name(full, full, sex)
        surname = self.surname()
        return Name(surname, surname, sex, "Mr." if sex == "m" else "Mrs.")

    def city(self) -> Name:
        en = self.rng.choice(tuple(lexicon.CITIES))
        return Name(en, lexicon.CITIES[en])

    def np(self, nouns: tuple[Noun, ...], *, possessive: str = "", definite: bool = False, subject: bool = False,
           simple: bool = False) -> Np:  # fmt: skip
        """A noun phrase without adjectives. `simple`: only determiners that nicht and kein go with."""
        rng = self.rng
        noun = rng.choice(nouns)
        if "weather" in noun.kinds:
            return Np(noun)
        if "mass" in noun.kinds:
            return Np(noun, "the" if definite or self.chance(0.4) else "")
        plural = self.chance(0.3)
        if possessive and noun.kinds & _OWNABLE and self.chance(0.3):
            return Np(noun, possessive, plural)
        if noun.kinds & _OWNABLE and self.chance(0.15):
            if self.chance(0.3) and not simple:
                owner = rng.choice(_OWNERS)
                return Np(noun, "", plural, owner=Name(owner, owner))
            return Np(noun, rng.choice(("my", "our")), plural)
        if plural:
            if definite:
                return Np(noun, rng.choice(("the", "the", "the", "the", "this")), True)
            if simple:
                return Np(noun, rng.choice(("the", "")), True)
            return Np(noun, rng.choice(("the", "the", "the", "", "", "this", "two", "three", "four", "five", "many",
                                        "some", "several")), True)  # fmt: skip
        if definite:
            return Np(noun, rng.choice(("the", "the", "the", "the", "the", "this")))
        if subject and self.chance(0.08):
            return Np(noun, rng.choice(("every", "every", "no")))
        return Np(noun, rng.choice(("the", "the", "the", "a", "a", "the" if simple else "this")))

    def subject(self, verb: Verb, budget: int) -> Phrase:
        people = "person" in verb.subjects
        draw = self.rng.random()
        if people and draw < 0.15:
            return Pronoun(self.rng.choice(("I", "we", "he", "she", "they")))
        if people and (draw < 0.4 or budget < 3):
            return self.name()
        nouns = _nouns_of(verb.subjects)
        if budget > 8 and draw > 0.88:
            return self.join([self.name() if people and self.chance(0.4) else self.np(nouns, definite=True)], nouns)
        return self.np(nouns, subject=True)

    def join(self, items: list[Np | Name], nouns: tuple[Noun, ...]) -> Join:
        while len(items) < 2 or (len(items) < 3 and self.chance(0.2)):
            item = self.np(nouns, definite=True)
            if all(not isinstance(other, Np) or other.noun is not item.noun for other in items):
                items.append(item)
            elif len(nouns) <= len(items):
                break
        return Join(items)

    def object(self, verb: Verb, kinds: frozenset[str], subject: Phrase, *, budget: int, negated: bool = False,
               definite: bool = False, dative: bool = False) -> Phrase:  # fmt: skip
        if "CITY" in kinds and self.chance(0.6 if len(kinds) > 1 else 1.0):
            return self.city()
        if "person" in kinds:
            draw = self.rng.random()
            if draw < 0.12:
                first = isinstance(subject, Pronoun) and subject.en in ("I", "we")
                choices = ["he", "she"] if first else ["I", "we", "he", "she"]
                # "sees her" and "sees them" would both be "sieht sie"; the datives differ.
                return Pronoun(self.rng.choice([*choices, "they"] if dative else choices))
            if draw < 0.3:
                return self.name()
        nouns = _nouns_of(kinds)
        possessive = _possessive_of(subject)
        if budget > 9 and not negated and not definite and self.chance(0.1) and len(nouns) > 2:
            return self.join([self.np(nouns, possessive=possessive, definite=True)], nouns)
        return self.np(nouns, possessive=possessive, definite=definite, simple=negated)

    def place(self) -> Pp:
        if self.chance(0.8):
            noun = self.rng.choice(_nouns_of(frozenset({"place"})))
            assert noun.location is not None
            return Pp(noun.location, self.np((noun,), definite=self.chance(0.7)))
        near = self.rng.choice(lexicon.NEARBY)
        return Pp(near, self.np(_nouns_of(frozenset({"building", "tree", "tower", "bridge"})), definite=True))

    def time(self, tense: str) -> lexicon.Adverb | Pp | None:
        if tense not in _PRESENT_WORD:
            return None
        draw = self.rng.random()
        if draw < 0.2:
            preposition = self.rng.choice((lexicon.DURING, lexicon.BEFORE, lexicon.AFTER))
            return Pp(preposition, self.np(_nouns_of(frozenset({"event"})), definite=True))
        if draw < 0.27:
            return Pp(lexicon.BECAUSE_OF, self.np(_nouns_of(frozenset({"weather"}))))
        times = [time for time in lexicon.TIMES if _PRESENT_WORD[tense] in time.tenses]
        return self.rng.choice(times)

    # Clauses

    def modal(self, verb: Verb, tense: str, negated: bool, question: bool = False) -> str:
        if "s" in verb.flags or "u" in verb.flags or tense not in ("present", "past") or not self.chance(0.14):
            return ""
        if tense == "past":
            return self.rng.choice(("can", "want") if negated or question else ("can", "must", "want"))
        return self.rng.choice(
            ("can", "want", "should") if negated else ("can", "must", "want", "should", "may", "would like")
        )

    def fits_tense(self, clause: Clause) -> bool:
        """Whether present and past look different in English: "they read" does not, "she read" does."""
        bare = clause.verb.base == clause.verb.past and clause.tense == "past" and not clause.modal
        if not bare or clause.negated or clause.question or clause.passive:
            return True
        return syntax.person_of(clause.subject) == (3, False)

    def clause(self, budget: int, tense: str, *, subject: Phrase | None = None, top: bool = False,
               question: bool = False, event: bool = False, depth: int = 0, tail: bool = True,
               refer: Np | None = None) -> Clause | None:  # fmt: skip
        """A clause of at most `budget` words, and nearly always exactly that many, or None.

        `top`: a main clause, which may begin with something other than its subject. `event`: something that happens
        once, as after until and before. `tail`: more relative clauses may follow. `refer`: an earlier noun phrase
        that an object pronoun takes up.
        """
        for _ in range(6):
            clause = self.core(budget, tense, subject, question, refer)
            if clause is None or not self.fits_tense(clause):
                continue
            if event and (clause.negated or clause.modal or "s" in clause.verb.flags or _is_none(clause.subject)):
                continue
            size = _size(clause)
            if size <= budget:
                self.grow(clause, budget - size, top=top, depth=depth, tail=tail, event=event)
                return clause
        return None

    def core(self, budget: int, tense: str, subject: Phrase | None, question: bool, refer: Np | None) -> Clause | None:
        rng = self.rng
        kinds = _kinds(subject) if subject else None
        if refer is not None:
            verbs = [verb for verb, slot in _verbs_taking(refer.noun) if slot == "accusative" and verb.frame == "a"]
            verbs = [verb for verb in verbs if "person" in verb.subjects]
            if not verbs:
                return None
            verb = rng.choice(verbs)
        else:
            draw = rng.random()
            if draw < 0.14 and budget >= 3:
                return self.copular(budget, tense, subject, question)
            if draw < 0.16 and budget >= 7 and subject is None:
                return self.existential(tense, question)
            frames, weights = _frames_for(kinds)
            if not frames:
                return None
            frame = rng.choices(frames, cum_weights=weights)[0]
            verb = rng.choice(_verbs_for(kinds, frame))
        if subject is None:
            subject = self.subject(verb, budget)
        negated = self.chance(0.12) and tense not in ("infinitive", "past perfect") and budget > 4
        if isinstance(subject, Np) and subject.det in ("no", "every"):
            negated = False
        if question and _is_none(subject):
            return None
        clause = Clause(verb, subject, tense, question=question)
        if not isinstance(subject, Wh):
            clause.negated = negated and not question
        clause.modal = self.modal(verb, tense, clause.negated, question)
        if verb.frame in ("a", "ap"):
            if refer is not None:
                clause.accusative = _pronoun_for(refer)
                clause.negated = False
            else:
                clause.accusative = self.object(verb, verb.objects, subject, budget=budget, negated=clause.negated)
        elif verb.frame in ("d", "da"):
            clause.dative = self.object(
                verb, verb.objects, subject, budget=budget, definite=verb.frame == "da" or clause.negated, dative=True
            )
        if verb.frame == "da":
            nouns = _nouns_of(verb.targets)
            clause.accusative = self.np(nouns, possessive=_possessive_of(subject), simple=clause.negated)
        if verb.frame == "p" and verb.preposition:
            np = self.object(
                verb, verb.objects, subject, budget=budget, negated=clause.negated, definite=clause.negated
            )
            # "denkt an das Buch": ans is for directions.
            clause.prep = Pp(verb.preposition, np, contract=verb.preposition[1:] != ("an", "acc"))
        elif verb.frame == "ap" and verb.preposition:
            preposition = verb.preposition
            clause.prep = Pp(preposition, self.np(_nouns_of(verb.targets), definite=True))
        elif verb.frame in ("dir", "loc"):
            clause.prep = self.goal(verb, definite=clause.negated or self.chance(0.8))
        if "P" in verb.flags and not clause.negated and not clause.modal and self.chance(0.4):
            return self.passive(clause)
        return clause

    def goal(self, verb: Verb, definite: bool) -> Pp:
        nouns = _nouns_of(verb.objects)
        if verb.frame == "loc":
            noun = self.rng.choice([noun for noun in nouns if noun.location])
            preposition = noun.location
        else:
            noun = self.rng.choice([noun for noun in nouns if noun.direction])
            preposition = noun.direction
            if preposition and verb.base == "return":
                preposition = preposition._replace(en="to")
        assert preposition is not None
        return Pp(preposition, self.np((noun,), definite=definite))

    def passive(self, clause: Clause) -> Clause | None:
        """The passive of a clause with an accusative object; the agent keeps its place in the meaning."""
        patient, agent = clause.accusative, clause.subject
        plain = isinstance(patient, Np) and patient.det in ("the", "this", "a", "my", "our") and not patient.owner
        if clause.tense not in ("present", "past") or not plain or clause.question or patient is None:
            return clause
        if not isinstance(agent, (Np, Name)) or (isinstance(agent, Np) and agent.det in ("no", "every")):
            return clause
        return Clause(clause.verb, patient, clause.tense, passive=True, prep=Pp(lexicon.BY, agent))

    def copular(self, budget: int, tense: str, subject: Phrase | None, question: bool) -> Clause | None:
        rng = self.rng
        if subject is None:
            if self.chance(0.6):
                subject = self.subject(lexicon.VERBS["sleep"]._replace(subjects=_PERSON), budget)
            else:
                subject = self.np(tuple(noun for noun in _NOUNS if _adjectives_of(noun)), definite=True)
        kinds = _kinds(subject)
        fitting = [adjective for adjective in lexicon.ADJECTIVES.values() if adjective.kinds & kinds]
        if not fitting:
            return None
        adjective = rng.choice(fitting)
        clause = Clause(lexicon.BE, subject, tense, question=question)
        clause.negated = self.chance(0.12) and tense in ("present", "past") and not question
        if isinstance(subject, Wh) or (isinstance(subject, Np) and subject.det in ("no", "every")):
            clause.negated = False
        predicate: Predicate | Np = Predicate(adjective)
        sex = subject.noun.sex if isinstance(subject, Np) and not subject.plural else ""
        sex = subject.sex if isinstance(subject, Name) else sex
        draw = rng.random()
        if draw < 0.2 and adjective.de_more and budget >= 6 and not isinstance(subject, Pronoun):
            others = tuple(noun for noun in _nouns_of(adjective.kinds & kinds))
            than: Phrase = self.name() if kinds & _PERSON and self.chance(0.4) else self.np(others, definite=True)
            if not (isinstance(than, Np) and isinstance(subject, Np) and than.noun is subject.noun):
                predicate = Predicate(adjective, than=than)
        elif draw < 0.4 and sex and budget >= 6 and adjective.kinds & _PERSON:
            jobs = [noun for noun in _nouns_of(frozenset({"job"})) if noun.sex == sex]
            noun = rng.choice(jobs)
            if not (isinstance(subject, Np) and (subject.noun is noun or "job" in subject.noun.kinds)):
                predicate = Np(noun, "a", adjectives=[adjective])
        clause.predicate = predicate
        return clause

    def existential(self, tense: str, question: bool) -> Clause | None:
        if tense not in ("present", "past"):
            return None
        noun = self.rng.choice(_nouns_of(frozenset({"town", "garden", "forest", "park", "valley", "island", "street"})))
        things = {"town": ("building", "park", "river", "bridge", "tower", "bakery")}.get(
            next(iter(noun.kinds & {"town"}), ""), ("animal", "tree", "house", "bench", "river")
        )
        plural = self.chance(0.4)
        np = Np(self.rng.choice(_nouns_of(frozenset(things))), self.rng.choice(("two", "many", "several")), True) \
            if plural else Np(self.rng.choice(_nouns_of(frozenset(things))), "a")  # fmt: skip
        assert noun.location is not None
        return Clause(lexicon.EXIST, There(), tense, question=question, accusative=np,
                      place=Pp(noun.location, Np(noun, self.rng.choice(("the", "the", "this")))))  # fmt: skip

    # Growing a clause word by word

    def grow(self, clause: Clause, room: int, *, top: bool, depth: int, tail: bool, event: bool = False) -> None:
        """Adds adjectives, adverbials, genitives, relative clauses, … until `room` words are used up."""
        steps: list[tuple[Callable[[Clause, int], int], float]] = [
            (self.add_adjective, 3.0),
            (self.add_very, 0.7),
            (self.add_manner, 1.0),
            (self.add_genitive, 0.8),
            (self.add_place, 1.5),
            (self.add_company, 0.5),
            (lambda c, n: self.add_time(c, n, top), 1.5),
            (lambda c, n: self.add_relative(c, n, depth, tail), 2.0 if room > 5 else 1.0),
            (self.add_predicate, 1.0),
        ]
        if top:
            steps.append((self.add_comment, 0.4))
        if not event:
            steps.append((self.add_frequency, 0.4))
        possible = list(range(len(steps)))
        weights = [weight for _, weight in steps]
        while room > 0 and possible:
            step = self.rng.choices(possible, [weights[n] for n in possible])[0]
            used = steps[step][0](clause, room)
            room -= used
            # What failed is tried again only after something else has changed the clause.
            possible = list(range(len(steps))) if used else [n for n in possible if n != step]

    def add_adjective(self, clause: Clause, room: int) -> int:
        phrases = [np for np in _own_phrases(clause) if len(np.adjectives) < 2 and not np.very]
        if not phrases:
            return 0
        np = self.rng.choice(phrases)
        ranks = {adjective.rank for adjective in np.adjectives}
        said = clause.predicate.adjective if isinstance(clause.predicate, Predicate) else None
        fitting = [word for word in _adjectives_of(np.noun) if word.rank not in ranks and word is not said]
        if not fitting:
            return 0
        np.adjectives = sorted([*np.adjectives, self.rng.choice(fitting)], key=lambda adjective: adjective.rank)
        return 1

    def add_very(self, clause: Clause, room: int) -> int:
        if isinstance(clause.predicate, Predicate) and not clause.predicate.than and not clause.predicate.very:
            if clause.predicate.adjective.de_more:
                clause.predicate.very = True
                return 1
            return 0
        phrases = [np for np in _own_phrases(clause) if len(np.adjectives) == 1 and not np.very and not np.owner]
        phrases = [np for np in phrases if np.adjectives[0].de_more and np.det in ("the", "a", "this")]
        if not phrases:
            return 0
        self.rng.choice(phrases).very = True
        return 1

    def add_manner(self, clause: Clause, room: int) -> int:
        if clause.negated or clause.tense not in _PRESENT_WORD or _closed(clause) or clause.manner or clause.passive:
            return 0
        manners = [manner for flag, manner in lexicon.MANNERS.items() if flag in clause.verb.flags]
        if not manners:
            return 0
        clause.manner = self.rng.choice(self.rng.choice(manners))
        return 1

    def add_frequency(self, clause: Clause, room: int) -> int:
        if clause.negated or clause.tense not in ("present", "past") or clause.modal or clause.time or clause.question:
            return 0
        if clause.frequency or clause.verb.frame == "exist" or clause.passive or isinstance(clause.predicate, Np):
            return 0
        clause.frequency = self.rng.choice(lexicon.FREQUENCIES)
        return 1

    def add_time(self, clause: Clause, room: int, top: bool) -> int:
        if clause.time or clause.frequency or clause.tense not in _PRESENT_WORD or isinstance(clause.predicate, Np):
            return 0
        if "s" in clause.verb.flags and clause.verb.frame not in ("be", "exist"):
            return 0
        front = top and not clause.question and not clause.comment and not clause.front and self.chance(0.45)
        if not front and (_closed(clause) or clause.complement or clause.then):
            return 0
        time = self.time(clause.tense)
        if time is None or (clause.negated and isinstance(time, lexicon.Adverb) and time.en.startswith("every")):
            return 0
        words = _words_of(time)
        if words > room:
            return 0
        clause.time = time
        clause.front = "time" if front else clause.front
        return words

    def add_place(self, clause: Clause, room: int) -> int:
        if clause.place or clause.negated or clause.passive or "x" in clause.verb.flags or room < 3:
            return 0
        if clause.verb.frame in ("loc", "dir", "ap") or _closed(clause) or clause.complement:
            return 0
        place = self.place()
        words = _words_of(place)
        if words > room:
            return 0
        clause.place = place
        return words

    def add_company(self, clause: Clause, room: int) -> int:
        """With someone, without someone: only beside verbs that take nothing else."""
        if clause.verb.frame != "i" or clause.company or clause.negated or room < 3 or _closed(clause):
            return 0
        if not _kinds(clause.subject) & _PERSON or clause.verb.base not in ("work", "dance", "sing", "cook", "play"):
            return 0
        people = self.np(_nouns_of(_PERSON), possessive=_possessive_of(clause.subject), definite=True)
        pp = Pp(lexicon.WITH if self.chance(0.7) else lexicon.WITHOUT, people)
        words = _words_of(pp)
        if words > room:
            return 0
        clause.company = pp
        return words

    def add_comment(self, clause: Clause, room: int) -> int:
        if clause.comment or clause.front or clause.question or clause.place or clause.tense not in _PRESENT_WORD:
            return 0
        comment = self.rng.choice(lexicon.COMMENTS)
        words = len(comment.en.replace("~", " ").split())
        if words > room:
            return 0
        clause.comment = comment
        return words

    def add_genitive(self, clause: Clause, room: int) -> int:
        if room < 3:
            return 0
        phrases = [np for np in _own_phrases(clause) if np.det == "the" and not np.of and not np.relative]
        phrases = [np for np in phrases if np.noun.kinds & (_OWNABLE | {"part"}) and not _is_joined(clause, np)]
        if not phrases:
            return 0
        np = self.rng.choice(phrases)
        owner = self.np(_nouns_of(frozenset({"building"}) if "part" in np.noun.kinds else _PERSON), definite=True)
        if owner.noun is np.noun or owner.owner:
            return 0
        words = 1 + _words_of(owner)
        if words > room:
            return 0
        np.of = owner
        return words

    def add_relative(self, clause: Clause, room: int, depth: int, tail: bool) -> int:
        if room < 3:
            return 0
        phrases: list[tuple[Np, bool]] = []
        if isinstance(clause.subject, Np) and depth == 0:
            phrases.append((clause.subject, False))
        last = _last_phrase(clause)
        if last is not None and tail and depth < 3:
            phrases.append((last, True))
        free = [(np, at_end) for np, at_end in phrases if not np.of and not np.owner and not np.relative]
        phrases = [(np, at_end) for np, at_end in free if np.det in _BEFORE_RELATIVE]
        if not phrases:
            return 0
        np, at_end = self.rng.choice(phrases)
        size = room if at_end else min(room, self.rng.randint(3, 8))
        if at_end and size > 8 and self.chance(0.6):
            size = self.rng.randint(4, size)
        for _ in range(4):
            relative = self.relative(np, size, clause.tense, depth + 1 if at_end else 3, at_end)
            if relative is not None:
                np.relative = relative
                return _size(relative)
        return 0

    def relative(self, np: Np, size: int, tense: str, depth: int, tail: bool) -> Clause | None:
        """A relative clause for `np`, of at most `size` words."""
        rng = self.rng
        pronoun = Relative(np.noun, np.plural)
        if tense == "present" and self.chance(0.2):
            tense = "past"
        elif tense in ("future", "infinitive"):
            tense = "present"
        elif tense == "past perfect":
            tense = "past"
        draw = rng.random()
        if draw < 0.45 or size < 4:
            return self.clause(size, tense, subject=pronoun, depth=depth, tail=tail)
        if draw < 0.55 and np.noun.kinds & _PERSON and size >= 5:
            owned = Np(rng.choice(_nouns_of(frozenset({"pet", "kin", "vehicle"}))), "", self.chance(0.3))
            pronoun.owned = owned
            return self.clause(size, tense, subject=pronoun, depth=depth, tail=tail)
        choices = _verbs_taking(np.noun)
        if np.noun.location and "place" in np.noun.kinds and self.chance(0.5):
            clause = self.core(size, tense, None, False, None)
            if clause is None or clause.negated or clause.passive or "x" in clause.verb.flags or clause.front:
                return None
            if clause.verb.frame not in ("i", "a") or clause.place or not self.fits_tense(clause):
                return None
            clause.place = Pp(np.noun.location, pronoun)
        elif choices:
            verb, slot = rng.choice(choices)
            clause = Clause(verb, self.subject(verb, min(size, 5)), tense)
            clause.modal = self.modal(verb, tense, False)
            if slot == "prep" and verb.preposition:
                clause.prep = Pp(verb.preposition, pronoun)
            elif slot == "dative":
                clause.dative = pronoun
                if verb.frame == "da":
                    clause.accusative = self.np(_nouns_of(verb.targets))
            else:
                if not _is_clear_object(verb, np.noun, np.plural, clause.subject):
                    return None
                clause.accusative = pronoun
                if verb.frame == "da":
                    clause.dative = self.np(_nouns_of(verb.objects), definite=True)
                elif verb.frame == "ap" and verb.preposition:
                    clause.prep = Pp(verb.preposition, self.np(_nouns_of(verb.targets), definite=True))
            if not self.fits_tense(clause):
                return None
        else:
            return None
        used = _size(clause)
        if used > size:
            return None
        self.grow(clause, size - used, top=False, depth=3, tail=False)
        return clause

    def add_predicate(self, clause: Clause, room: int) -> int:
        """A second predicate for the same subject: … and sees the dog."""
        if clause.then or clause.complement or clause.negated or clause.question or clause.passive or room < 3:
            return 0
        if (
            clause.tense not in _PRESENT_WORD
            or clause.frequency
            or _closed(clause)
            or clause.verb.frame in ("be", "exist")
        ):
            return 0
        if clause.modal in ("want", "would like") or isinstance(clause.subject, (Wh, There)):
            return 0
        if isinstance(clause.subject, Relative) or _moves_something(clause):
            return 0
        for _ in range(4):
            other = self.core(room - 1, clause.tense, clause.subject, False, None)
            if other is None or other.verb is clause.verb or other.negated or other.passive:
                continue
            if other.verb.frame not in _FRAME_WEIGHTS or (clause.modal and {"s", "u"} & set(other.verb.flags)):
                continue
            other.modal = clause.modal
            if not self.fits_tense(other):
                continue
            words = 1 + _size(other, shared=True)
            if words <= room:
                clause.then = other
                return words
        return 0

    # Sentences

    def new_sentence(self, length: int, split: str, seen: set[int], variations: int) -> GrammarPair | None:
        """A sentence of the split whose digest is not among `seen` (it is added), or None if this attempt failed."""
        sentence = self.sentence(length)
        if sentence is None:
            return None
        for _ in range(variations):
            words = syntax.english_words(sentence)
            digest = _digest(syntax.text_of(words))
            if digest not in seen and _split_of_digest(digest) == split:
                seen.add(digest)
                return syntax.pair_of(words, sentence)
            if not self.vary(sentence):
                return None
        return None

    def vary(self, sentence: Sentence) -> bool:
        """Puts another name or adjective in the place of one; False if there is none."""
        places: list[Name | Np] = []
        for segment in sentence.segments:
            for sub in (segment.before, segment.after):
                if sub:
                    places += _variable(sub.clause)
            places += _variable(segment.clause)
        if not places:
            return False
        place = self.rng.choice(places)
        if isinstance(place, Np):
            n = self.rng.randrange(len(place.adjectives))
            rank = place.adjectives[n].rank
            fitting = [word for word in _adjectives_of(place.noun) if word.rank == rank]
            if place.very:
                fitting = [word for word in fitting if word.de_more]
            if fitting:
                place.adjectives[n] = self.rng.choice(fitting)
        elif not place.sex:
            place.en, place.de = self.rng.choice(tuple(lexicon.CITIES.items()))
        else:
            first = self.rng.choice(lexicon.MEN if place.sex == "m" else lexicon.WOMEN)
            forms = (first, f"{first} {self.surname()}") if not place.title else (self.surname(),)
            place.en = place.de = forms[" " in place.en]
        return True

    def tense(self) -> str:
        return self.rng.choices(("present", "past", "future"), (5, 4, 1))[0]

    def sentence(self, length: int) -> Sentence | None:
        """A sentence of exactly `length` words, or None when this attempt missed it."""
        if 4 <= length <= 20 and self.chance(0.12):
            question = self.question(length)
            sentence = Sentence([Segment(question)]) if question else None
        else:
            segments: list[Segment] = []
            room = length
            tense = self.tense()
            while room > 0:
                link = ""
                if segments:
                    links = ("and", "and", "but", "so", "and then")
                    link = self.rng.choice([link for link in links if link == "and" or link != segments[-1].link])
                    room -= len(link.split())
                last = room < 16 or (room < 30 and self.chance(0.5))
                size = room if last else self.rng.randint(7, min(24, room - 7))
                segment = self.segment(size, link, tense, segments[-1] if segments else None)
                if segment is None:
                    return None
                segments.append(segment)
                room -= _segment_size(segment)
                if last:
                    break
            sentence = Sentence(segments)
        if sentence is None or syntax.count_words(syntax.english_words(sentence)) != length:
            return None
        return sentence

    def segment(self, size: int, link: str, tense: str, previous: Segment | None) -> Segment | None:
        """A main clause with or without a subordinate clause; the last part is drawn until the size is met."""
        draw = self.rng.random()
        top = link not in ("so", "and then")
        best: Segment | None = None
        for _ in range(8):
            if size >= 9 and draw < 0.35:
                segment = self.with_adverbial_clause(size, link, tense)
            elif size >= 7 and draw < 0.55:
                segment = self.with_complement(size, link, tense, top)
            else:
                refer = None
                if previous and not previous.before and not previous.after and not previous.clause.complement \
                        and self.chance(0.35):  # fmt: skip
                    refer = _only_thing(previous.clause)
                clause = self.clause(size, tense, top=top, refer=refer)
                segment = Segment(clause, link=link) if clause else None
            if segment is not None:
                best = segment
                if _segment_size(segment) == size:
                    break
        return best

    def with_adverbial_clause(self, size: int, link: str, tense: str) -> Segment | None:
        rng = self.rng
        names = {
            "present": ("because", "although", "while", "when", "if", "before", "as~soon~as", "until", "so~that"),
            "past": ("because", "although", "while", "when", "before", "after", "as~soon~as", "until", "so~that"),
            "future": ("because", "although", "when", "if", "before", "as~soon~as", "until", "so~that"),
        }[tense]
        if self.chance(0.12):
            return self.with_purpose(size, link, tense)
        name = rng.choice(names)
        conjunction = lexicon.WHEN_PAST if name == "when" and tense == "past" else lexicon.CONJUNCTIONS[name]
        before = rng.choice(conjunction.where) == "b" and link not in ("so", "and then")
        overhead = len(conjunction.en.replace("~", " ").split())
        room = size - overhead
        event = name in ("before", "after", "until", "as~soon~as")
        first_size = rng.randint(3, max(3, min(16, room - 4)))
        first = self.clause(first_size, _inner_tense(name, tense) if before else tense, event=event and before)
        if first is None:
            return None
        # After the first clause its subject may return as a pronoun, its object as "it".
        subject = None
        if self.chance(0.4) and not isinstance(first.subject, Pronoun):
            subject = _pronoun_for(first.subject)
            if subject and subject.en == "it" and not _only_thing(first):
                subject = None
        rest = room - _size(first)
        second_tense = tense if before else _inner_tense(name, tense)
        if name == "so~that" and subject and "person" not in _kinds(subject):
            subject = None
        for _ in range(6):
            refer = _only_thing(first) if subject is None and self.chance(0.3) else None
            second = self.clause(rest, second_tense, subject=subject, refer=refer, event=event and not before)
            if second is None or second.verb.infinitive == first.verb.infinitive:
                continue
            if name == "so~that":
                inside = second
                if inside.negated or inside.passive or inside.then or inside.frequency or "s" in inside.verb.flags:
                    continue
                inside.modal = "can"
                if _size(inside) > rest or inside.tense == "future":
                    continue
            if _size(second) == rest:
                break
        else:
            return None
        if before:
            return Segment(second, before=Sub(conjunction, first), link=link)
        return Segment(first, after=Sub(conjunction, second), link=link)

    def with_purpose(self, size: int, link: str, tense: str) -> Segment | None:
        """… in order to …"""
        subject = self.subject(lexicon.VERBS["work"], 5)
        first = self.clause(self.rng.randint(3, max(3, min(12, size - 5))), tense, subject=subject)
        if first is None or first.then or first.passive or "s" in first.verb.flags or first.verb.frame == "be":
            return None
        second = self.infinitive(size - _size(first) - 2, first.subject)
        return Segment(first, after=Sub(lexicon.IN_ORDER, second), link=link) if second else None

    def infinitive(self, size: int, subject: Phrase) -> Clause | None:
        for _ in range(6):
            clause = self.clause(size, "infinitive", subject=_without_relative(subject))
            if clause is None or clause.passive or clause.verb.frame == "be" or clause.then:
                continue
            if "s" in clause.verb.flags or "u" in clause.verb.flags:
                continue
            if _size(clause) == size:
                return clause
        return None

    def with_complement(self, size: int, link: str, tense: str, top: bool) -> Segment | None:
        """Says that …, asks whether …, tries to …"""
        rng = self.rng
        frame = rng.choice(("that", "that", "ask", "inf"))
        verb = rng.choice(_VERBS_BY_FRAME[frame])
        subject = self.subject(verb, min(size, 5))
        if _is_none(subject) and frame == "inf":
            return None
        clause = Clause(verb, subject, tense)
        if verb.objects:
            person = self.object(verb, _PERSON, subject, budget=3, definite=True)
            clause.accusative = person if not isinstance(person, Np) or person.det in ("the", "my", "our") else None
            if clause.accusative is None:
                return None
        clause.negated = frame != "inf" and verb.base in ("know", "believe", "say") and self.chance(0.2)
        if isinstance(subject, Np) and subject.det in ("no", "every"):
            clause.negated = False
        if size > 12 and self.chance(0.4):
            self.grow(clause, rng.randint(1, 6), top=top, depth=0, tail=False)
        if clause.then or clause.manner or clause.place or clause.company or (clause.time and clause.front != "time"):
            return None
        room = size - _size(clause)
        if frame == "inf":
            inner = self.infinitive(room, subject)
            if inner is None or inner.verb.infinitive == verb.infinitive:
                return None
            clause.complement = Sub(lexicon.TO, inner)
            return Segment(clause, link=link)
        conjunction = lexicon.CONJUNCTIONS["that"]
        if frame == "ask":
            conjunction = lexicon.CONJUNCTIONS[rng.choice(("whether", "whether", "why", "where"))]
        inner_tense = "past" if tense == "past" else rng.choice(("present", "present", "past", "future"))
        if tense == "future":
            inner_tense = "present"
        for _ in range(6):
            sub = self.clause(room - 1, inner_tense)
            if sub is None or _size(sub) != room - 1:
                continue
            if conjunction.en == "where" and not _can_ask_where(sub):
                continue
            clause.complement = Sub(conjunction, sub)
            return Segment(clause, link=link)
        return None

    def question(self, length: int) -> Clause | None:
        rng = self.rng
        tense = self.tense()
        kind = rng.choice(("yes/no", "yes/no", "who", "object", "object", "which", "adverb", "adverb"))
        if kind == "yes/no":
            return self.clause(length, tense, question=True)
        if kind == "who":
            return self.clause(length, tense, subject=Wh(person=True), question=True)
        if kind == "adverb":
            wh = rng.choice(("why", "when", "where", "where to", "how"))
            clause = self.clause(length - 1, tense, question=True)
            if clause is None or clause.time or clause.verb.frame in ("be", "exist") or clause.passive:
                return None
            if wh == "how" and ("m" not in clause.verb.flags or clause.manner):
                return None
            if wh == "where" and not _can_ask_where(clause):
                return None
            if wh == "where to":
                if clause.verb.frame != "dir":
                    return None
                clause.prep = None
                self.grow(clause, length - 1 - _size(clause), top=False, depth=0, tail=False)
            if isinstance(clause.predicate, Predicate):
                return None
            clause.wh = wh
            return clause
        frame = rng.choice(("a", "a", "d"))
        verb = rng.choice(_VERBS_BY_FRAME[frame])
        clause = Clause(verb, self.subject(verb, min(length, 5)), tense, question=True)
        if _is_none(clause.subject):
            return None
        clause.modal = self.modal(verb, tense, False, question=True)
        asked: Phrase
        if kind == "which":
            noun = rng.choice(_nouns_of(verb.objects))
            if frame == "a" and not _is_clear_object(verb, noun, False, clause.subject):
                return None
            asked = Np(noun, "which", self.chance(0.3) and "mass" not in noun.kinds)
        else:
            asked = Wh(person="person" in verb.objects or "animal" in verb.objects)
        if frame == "d":
            if not verb.objects & _PERSON:
                return None
            clause.dative = asked
        else:
            clause.accusative = asked
        size = _size(clause)
        if size > length:
            return None
        self.grow(clause, length - size, top=False, depth=0, tail=False)
        return clause


def _variable(clause: Clause) -> list[Name | Np]:
    """The names of a clause, and its noun phrases with adjectives."""
    found: list[Name | Np] = [np for np in _noun_phrases(clause) if np.adjectives]
    for part in (clause.subject, clause.dative, clause.accusative, clause.prep and clause.prep.np):
        found += [part] if isinstance(part, Name) else []
    if clause.complement:
        found += _variable(clause.complement.clause)
    return found


def _own_phrases(clause: Clause) -> list[Np]:
    """The noun phrases that adjectives and genitives may still go to: not those in relative clauses."""
    found: list[Np] = []
    parts: list[object] = [clause.subject, clause.dative, clause.accusative, clause.prep, clause.place, clause.company]
    parts += [clause.predicate, clause.time]
    while parts:
        part = parts.pop(0)
        if isinstance(part, Np):
            found.append(part)
            parts.append(part.of)
        elif isinstance(part, Join):
            parts += part.items
        elif isinstance(part, Pp):
            parts.append(part.np)
        elif isinstance(part, Predicate):
            parts.append(part.than)
        elif isinstance(part, Relative):
            parts.append(part.owned)
    if clause.then:
        found += [np for np in _own_phrases(clause.then) if all(np is not other for other in found)]
    return found


def _is_joined(clause: Clause, np: Np) -> bool:
    for part in (clause.subject, clause.dative, clause.accusative, clause.prep and clause.prep.np):
        if isinstance(part, Join) and any(item is np for item in part.items):
            return True
    return False


def _closed(clause: Clause) -> bool:
    """Whether nothing may follow the last phrase: after a relative clause an adverb would seem to belong to it."""
    parts = (clause.accusative, clause.dative, clause.prep.np if clause.prep else None)
    return any(isinstance(part, Np) and part.relative is not None for part in parts) or clause.then is not None


def _moves_something(clause: Clause) -> bool:
    parts = (clause.accusative, clause.dative, clause.prep and clause.prep.np, clause.place and clause.place.np)
    return any(isinstance(part, (Relative, Wh)) for part in parts)


def _is_clear_object(verb: Verb, noun: Noun, plural: bool, subject: Phrase) -> bool:
    """Whether German shows that the noun, ahead of its verb, is the object: "die Frau, die Anna sieht" does not."""
    if not verb.subjects & noun.kinds or (noun.gender == "m" and not plural):
        return True
    if syntax.person_of(subject) != (3, plural):
        return True
    if isinstance(subject, Pronoun):
        return subject.en == "he"
    return isinstance(subject, Np) and subject.noun.gender == "m" and not subject.plural and not subject.owner


def _can_ask_where(clause: Clause) -> bool:
    return (
        not clause.place
        and not clause.passive
        and "x" not in clause.verb.flags
        and clause.verb.frame in ("i", "a", "d")
    )


def _inner_tense(name: str, tense: str) -> str:
    """The tense of an adverbial clause beside a main clause in `tense`."""
    if name == "after":
        return "past perfect"
    return "present" if tense == "future" else tense


def _without_relative(phrase: Phrase) -> Phrase:
    """The subject as it is understood, not written, in an infinitive clause."""
    return Np(phrase.noun, phrase.det, phrase.plural) if isinstance(phrase, Np) else phrase


def _size(clause: Clause, shared: bool = False) -> int:
    return syntax.count_words(syntax.english_clause(clause, shared))


def _words_of(part: lexicon.Adverb | Pp | Np) -> int:
    if isinstance(part, Pp):
        return len(part.preposition.en.split("~")) + syntax.count_words(syntax.english_phrase(part.np))
    if isinstance(part, Np):
        return syntax.count_words(syntax.english_phrase(part))
    return len(part.en.replace("~", " ").split())


def _segment_size(segment: Segment) -> int:
    size = _size(segment.clause)
    for sub in (segment.before, segment.after):
        if sub:
            size += len(sub.conjunction.en.replace("~", " ").split()) + _size(sub.clause)
    return size
