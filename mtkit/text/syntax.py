"""Syntax trees of the synthetic bitext, and how English and German write them.

`translate_tree` writes a `Sentence` twice, once by the rules of English and once by those of German, and tells which
words correspond: during writing, words that correspond carry the same tag. Which trees make sense is the business of
`grammar.py`; the rules here hold for every tree whose parts keep to what their docstrings say.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from mtkit.text import lexicon
from mtkit.text.lexicon import Adjective, Adverb, Conjunction, Noun, Preposition, Verb


class GrammarPair(NamedTuple):
    """A sentence pair; `alignment` links 0-based positions in `split_words(src)` and `split_words(trg)`."""

    src: str
    trg: str
    alignment: tuple[tuple[int, int], ...]


def split_words(text: str) -> list[str]:
    """The words that alignments count: split at blanks; a final comma, and the mark that ends the text, stand alone.

    The full stop of an abbreviation inside the sentence ("Mr.") stays with its word.
    """
    words: list[str] = []
    for word in text.split():
        words += [word[:-1], ","] if word.endswith(",") and len(word) > 1 else [word]
    if words and len(words[-1]) > 1 and words[-1][-1] in ".?":
        words[-1:] = [words[-1][:-1], words[-1][-1]]
    return words


# --- Syntax trees -----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Name:
    """A person or a city; a title ("Mr.", "Mrs.") comes with a surname."""

    en: str
    de: str
    sex: str = ""
    title: str = ""


@dataclass(slots=True)
class Np:
    """A noun with what belongs to it. `det` is an English determiner ("" for none); `very` goes to the first adjective.

    `owner` takes the determiner's place (Anna's dog), `of` is a genitive, `relative` a clause that holds a `Relative`.
    """

    noun: Noun
    det: str = "the"
    plural: bool = False
    adjectives: list[Adjective] = field(default_factory=list)
    very: bool = False
    owner: Name | None = None
    of: Np | None = None
    relative: Clause | None = None


@dataclass(slots=True)
class Pronoun:
    """I, we, he, she, it, they; `noun` is what it stands for: the grammatical gender of "it" comes from there."""

    en: str
    noun: Noun | None = None


@dataclass(slots=True)
class Join:
    """Noun phrases joined by and; none of them has a relative clause."""

    items: list[Np | Name]


@dataclass(slots=True)
class Relative:
    """The relative pronoun, in the place of the clause where its antecedent is missing; `owned`: whose …"""

    noun: Noun
    plural: bool = False
    owned: Np | None = None


@dataclass(slots=True)
class Wh:
    """Who or what, in its place; it is moved to the front."""

    person: bool


@dataclass(slots=True)
class There:
    """The subject of "there is"."""


Phrase = Np | Name | Pronoun | Join | Relative | Wh | There


@dataclass(slots=True)
class Pp:
    """A prepositional phrase. `contract` allows im, zum, ans …"""

    preposition: Preposition
    np: Phrase
    contract: bool = True


@dataclass(slots=True)
class Predicate:
    """What follows "to be": an adjective, perhaps compared with something."""

    adjective: Adjective
    very: bool = False
    than: Phrase | None = None


@dataclass(slots=True)
class Sub:
    """A subordinate clause and the word that opens it."""

    conjunction: Conjunction
    clause: Clause


@dataclass(slots=True)
class Clause:
    """A clause, in neither language's order.

    `tense`: present, past (English simple past, German perfect; preterite of haben, sein and modals), future,
    past perfect, infinitive. In the passive the subject is the patient and `prep` the agent. `then` is a second
    predicate of the same subject. `front` moves "time" or "place" to the front of a main clause.
    """

    verb: Verb
    subject: Phrase
    tense: str = "present"
    modal: str = ""
    negated: bool = False
    passive: bool = False
    question: bool = False
    dative: Phrase | None = None
    accusative: Phrase | None = None
    prep: Pp | None = None
    predicate: Predicate | Np | None = None
    comment: Adverb | None = None
    wh: str = ""
    time: Adverb | Pp | None = None
    frequency: Adverb | None = None
    manner: Adverb | None = None
    company: Pp | None = None
    place: Pp | None = None
    front: str = ""
    complement: Sub | None = None
    then: Clause | None = None


@dataclass(slots=True)
class Segment:
    """A main clause, perhaps with a subordinate clause before or after it; `link` joins it to the segment before."""

    clause: Clause
    before: Sub | None = None
    after: Sub | None = None
    link: str = ""


@dataclass(slots=True)
class Sentence:
    """Main clauses in a row."""

    segments: list[Segment]


# --- Writing: what both languages share -------------------------------------------------------------------------------

Word = tuple[str, tuple[str, ...]]  # the word and its tags: words with a common tag are aligned
_COMMA: Word = (",", ())


def _tagged(text: str, tag: str) -> list[Word]:
    """Words for `text`; the n-th group (words joined by ~) gets the tag of the n-th group on the other side."""
    groups = text.split()
    return [(word, (f"{tag}{n}",)) for n, group in enumerate(groups) for word in group.split("~")]


def person_of(phrase: Phrase) -> tuple[int, bool]:
    """Grammatical person and whether plural."""
    if isinstance(phrase, Pronoun):
        return (1 if phrase.en in ("I", "we") else 3), phrase.en in ("we", "they")
    if isinstance(phrase, Relative):
        return 3, phrase.owned.plural if phrase.owned else phrase.plural
    return 3, isinstance(phrase, Join) or (isinstance(phrase, Np) and phrase.plural)


def _agreement(clause: Clause, english: bool) -> tuple[int, bool]:
    if english and isinstance(clause.subject, There) and clause.accusative is not None:
        return person_of(clause.accusative)
    return person_of(clause.subject)


def _moves(phrase: Phrase | None) -> bool:
    """Whether the phrase goes to the front of its clause: relative pronouns and question words."""
    return isinstance(phrase, (Relative, Wh)) or (isinstance(phrase, Np) and phrase.det == "which")


def _finish(words: list[Word], mark: str) -> list[Word]:
    """One comma where several meet, none at the ends; a capital first; the mark at the end."""
    kept: list[Word] = []
    for word in words:
        if word[0] == "," and (not kept or kept[-1][0] == ","):
            if kept and word[1]:
                kept[-1] = (",", kept[-1][1] + word[1])
            continue
        kept.append(word)
    if kept[-1][0] == ",":
        kept.pop()
    first = kept[0][0]
    kept[0] = (first[0].upper() + first[1:], kept[0][1])
    kept.append((mark, ("end",)))
    return kept


def text_of(words: list[Word]) -> str:
    """Ordinary text: punctuation attached to the word before it."""
    return "".join(word if word in (",", ".", "?") else " " + word for word, _ in words)[1:]


def _sentence_words(sentence: Sentence, english: bool) -> list[Word]:
    words: list[Word] = []
    for n, segment in enumerate(sentence.segments):
        at = f"{n}."
        inverts = False
        if segment.link:
            en, de, inverts = lexicon.LINKS[segment.link]
            words += [(",", (at + ",",)), *_tagged(en if english else de, at + "&")]
        if segment.before:
            before = (_en_sub if english else _de_sub)(segment.before, at + "b")
            words += before if english else before[1:]  # no comma between und and weil
            words.append((",", (at + "b,",)))
            inverts = True
        if english:
            words += _en_clause(segment.clause, at + "c")
        else:
            words += _de_clause(segment.clause, at + "c", "v1" if inverts else "v2")
        if segment.after:
            words += (_en_sub if english else _de_sub)(segment.after, at + "a")
    return _finish(words, "?" if sentence.segments[0].clause.question else ".")


def english_words(sentence: Sentence) -> list[Word]:
    return _sentence_words(sentence, english=True)


def english_clause(clause: Clause, shared: bool = False) -> list[Word]:
    """The English words of a clause by itself; `shared`: as a second predicate, without subject and auxiliary."""
    return _en_clause(clause, "", shared)


def english_phrase(phrase: Phrase) -> list[Word]:
    return _en_phrase(phrase, "", "acc")


def count_words(words: list[Word]) -> int:
    """The blank-separated words of the text: punctuation is attached and does not count."""
    return sum(word not in (",", ".", "?") for word, _ in words)


def translate_tree(sentence: Sentence) -> GrammarPair:
    """The sentence in English and German, and which of their words correspond."""
    return pair_of(english_words(sentence), sentence)


def pair_of(src: list[Word], sentence: Sentence) -> GrammarPair:
    """As `translate_tree`, for English words that are already written."""
    trg = _sentence_words(sentence, english=False)
    positions: dict[str, list[int]] = {}
    for i, (_, tags) in enumerate(src):
        for tag in tags:
            positions.setdefault(tag, []).append(i)
    links = {(i, j) for j, (_, tags) in enumerate(trg) for tag in tags for i in positions.get(tag, ())}
    return GrammarPair(text_of(src), text_of(trg), tuple(sorted(links)))


# --- English ----------------------------------------------------------------------------------------------------------


def _en_np(np: Np, at: str) -> list[Word]:
    words: list[Word] = []
    for n, adjective in enumerate(np.adjectives):
        if n == 0 and np.very:
            words.append(("very", (at + "y",)))
        words.append((adjective.en, (f"{at}j{n}",)))
    words += [(np.noun.en_plural if np.plural else np.noun.en, (at + "n",))]
    if np.owner:
        words.insert(0, (np.owner.en + "'s", (at + "w",)))
    elif np.det:
        det = np.det
        if det == "a":
            det = lexicon.article_a(words[0][0])
        elif det == "this" and np.plural:
            det = "these"
        words.insert(0, (det, (at + "d",)))
    if np.of:
        words += [("of", (at + "gd",)), *_en_np(np.of, at + "g")]
    if np.relative:
        words += _en_clause(np.relative, at + "r")
    return words


def _en_phrase(phrase: Phrase, at: str, case: str) -> list[Word]:
    """`case`: nom, acc, or prep for what stands after a preposition (which, not that)."""
    if isinstance(phrase, Np):
        return _en_np(phrase, at)
    if isinstance(phrase, Name):
        title = [(phrase.title, (at + "t",))] if phrase.title else []
        return title + _tagged(phrase.en, at)
    if isinstance(phrase, Pronoun):
        key = f"it {phrase.noun.gender}" if phrase.en == "it" and phrase.noun else phrase.en
        return [(lexicon.PRONOUNS[key][0 if case == "nom" else 1], (at + "n",))]
    if isinstance(phrase, Join):
        words: list[Word] = []
        last = len(phrase.items) - 1
        for n, item in enumerate(phrase.items):
            if n:
                words.append(("and", (at + "&",)) if n == last else (",", (f"{at},{n}",)))
            words += _en_phrase(item, f"{at}{n}.", case)
        return words
    if isinstance(phrase, Relative):
        if phrase.owned:
            return [("whose", (at + "q",)), *_en_np(phrase.owned, at)]
        if "person" in phrase.noun.kinds:
            return [("who" if case == "nom" else "whom", (at + "n",))]
        return [("which" if case == "prep" else "that", (at + "n",))]
    if isinstance(phrase, Wh):
        text = ("who" if case == "nom" else "whom") if phrase.person else "what"
        return [(text, (at + "n",))]
    return [("there", (at + "n",))]


def _en_pp(pp: Pp, at: str) -> list[Word]:
    return [(word, (at + "p",)) for word in pp.preposition.en.split("~")] + _en_phrase(pp.np, at, "prep")


def _en_time(clause: Clause, at: str) -> list[Word]:
    if clause.time is None:
        return []
    return _en_pp(clause.time, at) if isinstance(clause.time, Pp) else _tagged(clause.time.en, at)


_BE_FORMS = {"present": ("am", "is", "are"), "past": ("was", "was", "were")}


def _en_be(tense: str, person: int, plural: bool) -> str:
    return _BE_FORMS[tense][2 if plural else 0 if person == 1 else 1]


def _en_verb(clause: Clause, at: str) -> tuple[list[Word], list[Word]]:
    """(auxiliaries with their not, the rest); the first auxiliary is what a question inverts."""
    verb, past = clause.verb, clause.tense == "past"
    v, a, m, no = (at + "v",), (at + "a",), (at + "m",), (at + "n",)
    person, plural = _agreement(clause, english=True)
    third = person == 3 and not plural
    base: list[Word] = [(word, v) for word in verb.base.split()]
    participle: list[Word] = [(word, v) for word in verb.participle.split()]
    auxiliary: list[Word] = []
    rest = base
    if clause.tense == "infinitive":
        return [], [("to", (at + "z",)), *base]
    support = clause.negated or (clause.question and not _moves(clause.subject))
    do: list[Word] = [("did", a) if past else ("does" if third else "do", ())]
    if clause.modal:
        modal = lexicon.MODALS[clause.modal]
        if modal.auxiliary:
            auxiliary = [(word, m) for word in (modal.past if past else modal.present).split()]
        elif support:
            auxiliary, rest = do, [(word, m) for word in modal.base.split()] + base
        else:
            finite = modal.past if past else modal.third if third else modal.present
            rest = [(word, m) for word in finite.split()] + base
    elif clause.tense == "future":
        auxiliary = [("will", a)]
    elif clause.tense == "past perfect":
        auxiliary, rest = [("had", a)], participle
    elif verb.base == "be":
        auxiliary, rest = [(_en_be(clause.tense, person, plural), v)], []
    elif clause.passive:
        auxiliary, rest = [(_en_be(clause.tense, person, plural), a)], participle
    elif support:
        auxiliary = do
    elif past:
        rest = [(word, v + a) for word in verb.past.split()]
    else:
        rest = [(word, v) for word in (verb.third if third else verb.base).split()]
    if clause.negated:
        if auxiliary[0][0] == "can":
            auxiliary[:1] = [("cannot", m + no)]
        else:
            auxiliary.insert(1, ("not", no))
    return auxiliary, rest


def _en_clause(clause: Clause, at: str, shared: bool = False) -> list[Word]:
    """A clause from its first word to its last; `shared`: subject and auxiliary stand in the clause before."""
    words: list[Word] = []
    if clause.comment:
        words += [*_tagged(clause.comment.en, at + "k"), _COMMA]
    if clause.front == "time":
        words += _en_time(clause, at + "t")
    if clause.front == "place" and clause.place:
        words += _en_pp(clause.place, at + "l")
    if clause.wh:
        words.append((clause.wh.split()[0], (at + "wh",)))
    parts: list[list[Word]] = []
    slots = (("d", clause.dative), ("o", clause.accusative), ("p", clause.prep), ("l", clause.place))
    for slot, phrase in slots:
        if phrase is None or (slot == "l" and clause.front == "place"):
            continue
        written = _en_pp(phrase, at + slot) if isinstance(phrase, Pp) else _en_phrase(phrase, at + slot, "acc")
        if _moves(phrase.np if isinstance(phrase, Pp) else phrase):
            words += written
        elif slot != "l":
            parts.append(written)
        else:
            place = written
    subject = [] if shared or clause.tense == "infinitive" else _en_phrase(clause.subject, at + "s", "nom")
    auxiliary, rest = _en_verb(clause, at)
    if shared:
        auxiliary = []
    if clause.question and not _moves(clause.subject):
        words += [*auxiliary[:1], *subject, *auxiliary[1:]]
    else:
        words += [*subject, *auxiliary]
    if clause.frequency:
        words += _tagged(clause.frequency.en, at + "f")
    words += rest
    particle: list[Word] = [(clause.verb.particle, (at + "v",))] if clause.verb.particle else []
    if isinstance(clause.accusative, Pronoun):
        parts.append(particle)
    else:
        words += particle
    for part in parts:
        words += part
    if isinstance(clause.predicate, Np):
        words += _en_np(clause.predicate, at + "e")
    elif clause.predicate:
        words += _en_predicate(clause.predicate, at + "e")
    if clause.manner:
        words += _tagged(clause.manner.en, at + "x")
    if clause.company:
        words += _en_pp(clause.company, at + "u")
    if clause.place and clause.front != "place" and not _moves(clause.place.np):
        words += place
    if clause.front != "time":
        words += _en_time(clause, at + "t")
    if clause.complement:
        words += _en_sub(clause.complement, at + "i")
    if clause.then:
        words += [("and", (at + "&",)), *_en_clause(clause.then, at + "&c", shared=True)]
    return words


def _en_predicate(predicate: Predicate, at: str) -> list[Word]:
    words: list[Word] = [("very", (at + "y",))] if predicate.very else []
    if predicate.than is None:
        return [*words, (predicate.adjective.en, (at + "j",))]
    words += [(word, (at + "j",)) for word in predicate.adjective.en_more.split()]
    return [*words, ("than", (at + "n",)), *_en_phrase(predicate.than, at + "t", "nom")]


def _en_sub(sub: Sub, at: str) -> list[Word]:
    return [*_tagged(sub.conjunction.en, at + "j"), *_en_clause(sub.clause, at)]


# --- German -----------------------------------------------------------------------------------------------------------

_AUXILIARIES = {
    "haben": ("habe", "hat", "haben", "hatte", "hatten"),
    "sein": ("bin", "ist", "sind", "war", "waren"),
    "werden": ("werde", "wird", "werden", "wurde", "wurden"),
    "geben": ("gebe", "gibt", "geben", "gab", "gaben"),
}


def _de_np(np: Np, at: str, case: str, negation: str = "") -> tuple[list[Word], list[Word]]:
    """The noun phrase and, apart, its relative clause (which may have to stand further right).

    `negation` is the tag of an English not that becomes kein.
    """
    gender = "p" if np.plural else np.noun.gender
    words: list[Word] = []
    if np.owner:
        words.append((np.owner.de + "s", (at + "w",)))
        declension = "strong"
    else:
        article, declension = lexicon.determiner("no" if negation else np.det, case, gender)
        if article:
            tags = (at + "d", negation) if negation else (at + "d",)
            words.append((article, tags))
    for n, adjective in enumerate(np.adjectives):
        if n == 0 and np.very:
            words.append(("sehr", (at + "y",)))
        ending = lexicon.ADJECTIVE_ENDING[declension][case, gender]
        words.append((adjective.stem + ending, (f"{at}j{n}",)))
    words.append((np.noun.german(case, np.plural), (at + "n",)))
    if np.of:
        words += _de_np(np.of, at + "g", "gen")[0]
    tail = [_COMMA, *_de_clause(np.relative, at + "r", "final"), _COMMA] if np.relative else []
    return words, tail


def _de_phrase(phrase: Phrase, at: str, case: str, negation: str = "") -> tuple[list[Word], list[Word]]:
    if isinstance(phrase, Np):
        return _de_np(phrase, at, case, negation)
    column = lexicon.CASES.index(case)
    if isinstance(phrase, Name):
        titles = {"": "", "Mr.": "Herr" if case == "nom" else "Herrn", "Mrs.": "Frau"}
        title = [(titles[phrase.title], (at + "t",))] if phrase.title else []
        return title + _tagged(phrase.de, at), []
    if isinstance(phrase, Pronoun):
        key = f"it {phrase.noun.gender}" if phrase.en == "it" and phrase.noun else phrase.en
        return [(lexicon.PRONOUNS[key][2 + column], (at + "n",))], []
    if isinstance(phrase, Join):
        words: list[Word] = []
        last = len(phrase.items) - 1
        for n, item in enumerate(phrase.items):
            if n:
                words.append(("und", (at + "&",)) if n == last else (",", (f"{at},{n}",)))
            words += _de_phrase(item, f"{at}{n}.", case)[0]
        return words, []
    if isinstance(phrase, Relative):
        gender = "p" if phrase.plural else phrase.noun.gender
        if phrase.owned:
            return [(lexicon.RELATIVE["gen", gender], (at + "q",)), *_de_np(phrase.owned, at, case)[0]], []
        return [(lexicon.RELATIVE[case, gender], (at + "n",))], []
    if isinstance(phrase, Wh):
        return [(("wer", "wen", "wem", "wessen")[column] if phrase.person else "was", (at + "n",))], []
    return [("es", (at + "n",))], []


def _de_pp(pp: Pp, at: str) -> tuple[list[Word], list[Word]]:
    words, tail = _de_phrase(pp.np, at, pp.preposition.case)
    np = pp.np
    if pp.contract and isinstance(np, Np) and np.det == "the" and not np.owner and not np.relative:
        contraction = lexicon.CONTRACTIONS.get((pp.preposition.de, words[0][0]))
        if contraction:
            return [(contraction, (at + "p", *words[0][1])), *words[1:]], tail
    return [(pp.preposition.de, (at + "p",)), *words], tail


def _de_time(clause: Clause, at: str) -> list[Word]:
    if clause.time is None:
        return []
    return _de_pp(clause.time, at)[0] if isinstance(clause.time, Pp) else _tagged(clause.time.de, at)


def _de_verb(clause: Clause, at: str) -> tuple[Word, list[Word], str]:
    """(finite verb, infinite verbs in the order of the right bracket, separable prefix of the finite verb)."""
    verb = clause.verb
    v, a = (at + "v",), (at + "a",)
    person, plural = _agreement(clause, english=False)
    column = 2 if plural else 0 if person == 1 else 1
    past = clause.tense == "past"
    infinitive: Word = (verb.prefix + verb.infinitive, v)
    if clause.tense == "infinitive":
        zu = (at + "z",)
        if verb.prefix:
            return ("", ()), [(verb.prefix + "zu" + verb.infinitive, zu + v)], ""
        return ("", ()), [("zu", zu), infinitive], ""
    if clause.modal:
        modal = lexicon.MODALS[clause.modal]
        return ((modal.de_past if past else modal.de_present)[plural], (at + "m",)), [infinitive], ""
    if clause.tense == "future":
        return (_AUXILIARIES["werden"][column], a), [infinitive], ""
    if clause.passive:
        return (_AUXILIARIES["werden"][3 + plural if past else column], a), [(verb.de_participle, v)], ""
    if past and verb.infinitive in ("haben", "sein", "geben") and verb.frame in ("be", "exist", "a"):
        return (_AUXILIARIES[verb.infinitive][3 + plural], v), [], ""
    if past or clause.tense == "past perfect":
        finite = _AUXILIARIES[verb.auxiliary][column if past else 3 + plural]
        return (finite, a), [(verb.de_participle, v)], ""
    if verb.infinitive in _AUXILIARIES:
        return (_AUXILIARIES[verb.infinitive][column], v), [], ""
    return ((verb.de_first, verb.de_third, verb.infinitive)[column], v), [], verb.prefix


def _is_definite(phrase: Phrase) -> bool:
    if isinstance(phrase, Join):
        return _is_definite(phrase.items[0])
    return not isinstance(phrase, Np) or phrase.owner is not None or phrase.det not in (
        "", "a", "some", "many", "several", "two", "three", "four", "five")  # fmt: skip


def takes_kein(phrase: Phrase | Predicate | None) -> bool:
    return isinstance(phrase, Np) and phrase.owner is None and phrase.det in ("a", "")


class _Piece(NamedTuple):
    words: list[Word]
    tail: list[Word]  # what may have to stand to the right of the verb


def _de_midfield(clause: Clause, at: str) -> tuple[list[Word], list[_Piece]]:
    """(what a relative pronoun or question word brings to the front, the pieces between subject and right bracket).

    Order: pronouns, time, frequency, definite objects, manner, company, place, indefinite objects, nicht, and last
    what belongs most closely to the verb: prepositional object, direction, predicate.
    """
    front: list[Word] = []
    pronouns: list[_Piece] = []
    definite: list[_Piece] = []
    indefinite: list[_Piece] = []
    kein = clause.negated and (takes_kein(clause.accusative) or takes_kein(clause.predicate))
    dative_is_first = clause.accusative is not None and _is_definite(clause.accusative)
    for slot, phrase, case in (("d", clause.dative, "dat"), ("o", clause.accusative, "acc")):
        if phrase is None:
            continue
        piece = _Piece(*_de_phrase(phrase, at + slot, case, at + "n" if kein and slot == "o" else ""))
        if _moves(phrase):
            front = piece.words
        elif isinstance(phrase, Pronoun):
            pronouns.append(piece)
        elif _is_definite(phrase) or (slot == "d" and dative_is_first):
            definite.append(piece)
        else:
            indefinite.append(piece)

    def prepositional(pp: Pp | None, tag: str) -> list[_Piece]:
        if pp is None:
            return []
        piece = _Piece(*_de_pp(pp, tag))
        if not _moves(pp.np):
            return [piece]
        front.extend(piece.words)
        return []

    pieces = pronouns
    if clause.time and clause.front != "time":
        pieces.append(_Piece(_de_time(clause, at + "t"), []))
    if clause.frequency:
        pieces.append(_Piece(_tagged(clause.frequency.de, at + "f"), []))
    pieces += definite
    if clause.manner:
        pieces.append(_Piece(_tagged(clause.manner.de, at + "x"), []))
    pieces += prepositional(clause.company, at + "u")
    if clause.passive:
        pieces += prepositional(clause.prep, at + "p")
    if clause.front != "place":
        pieces += prepositional(clause.place, at + "l")
    pieces += indefinite
    if clause.negated and not kein:
        pieces.append(_Piece([("nicht", (at + "n",))], []))
    if not clause.passive:
        pieces += prepositional(clause.prep, at + "p")
    if isinstance(clause.predicate, Np):
        pieces.append(_Piece(*_de_np(clause.predicate, at + "e", "nom", at + "n" if kein else "")))
    elif clause.predicate:
        pieces.append(_de_predicate(clause.predicate, at + "e"))
    return front, pieces


def _de_predicate(predicate: Predicate, at: str) -> _Piece:
    words: list[Word] = [("sehr", (at + "y",))] if predicate.very else []
    if predicate.than is None:
        return _Piece([*words, (predicate.adjective.de, (at + "j",))], [])
    compared = [("als", (at + "n",)), *_de_phrase(predicate.than, at + "t", "nom")[0]]
    return _Piece([(predicate.adjective.de_more, (at + "j",))], compared)


def _de_clause(clause: Clause, at: str, order: str) -> list[Word]:
    """A clause in order "v2", "v1" (after something that already fills the first place) or "final"."""
    front, pieces = _de_midfield(clause, at)
    finite, infinite, prefix = _de_verb(clause, at)
    subject, subject_tail = _de_phrase(clause.subject, at + "s", "nom")
    subject += subject_tail
    if clause.wh:
        front = [(lexicon.WH_ADVERBS[clause.wh], (at + "wh",))]
    elif clause.comment:
        front = _tagged(clause.comment.de, at + "k")
    elif clause.front == "time":
        front = _de_time(clause, at + "t")
    elif clause.front == "place" and clause.place:
        front = _de_pp(clause.place, at + "l")[0]
    yes_no = clause.question and not _moves(clause.subject)
    if not front and order != "v1" and not yes_no and clause.tense != "infinitive":
        front, subject = subject, []
    if clause.tense == "infinitive":
        subject = []
    predicates = [(pieces, finite, infinite, prefix)]
    if clause.then:
        predicates.append((_de_midfield(clause.then, at + "&c")[1], *_de_verb(clause.then, at + "&c")))
    # Two predicates share a finite auxiliary: in first place it stands in the first, in last place in the second.
    shared = len(predicates) == 2 and all(part[2] and part[1][0] == finite[0] for part in predicates)
    if shared:
        finite = (finite[0], finite[1] + predicates[1][1][1])
    words = list(front)
    for n, (midfield, own_finite, infinite, prefix) in enumerate(predicates):
        own_finite = finite if shared else own_finite
        if n:
            words.append(("und", (at + "&",)))
        right = list(infinite)
        if order == "final":
            if own_finite[0] and not (shared and n == 0):
                right.append((prefix + own_finite[0], own_finite[1]))
        else:
            if not (shared and n == 1):
                words.append(own_finite)
            if prefix:
                right.append((prefix, own_finite[1]))
        if n == 0:
            words += subject
        for piece in midfield[:-1]:
            words += piece.words + piece.tail
        # A relative clause of the last piece follows the right bracket: "den Hund sieht, der …".
        words += midfield[-1].words + right + midfield[-1].tail if midfield else right
    if clause.complement:
        words += _de_sub(clause.complement, at + "i")
    return words


def _de_sub(sub: Sub, at: str) -> list[Word]:
    return [_COMMA, *_tagged(sub.conjunction.de, at + "j"), *_de_clause(sub.clause, at, "final"), _COMMA]
