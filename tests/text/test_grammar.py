"""The synthetic bitext: German written by hand against what the grammar writes; splits, lengths, alignments."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys

import pytest

from mtkit.errors import RequestError
from mtkit.text.grammar import generate, split_of, split_words, translate_tree
from mtkit.text.lexicon import (
    ADJECTIVES,
    AFTER,
    BE,
    BECAUSE_OF,
    BY,
    COMMENTS,
    CONJUNCTIONS,
    DURING,
    EXIST,
    FREQUENCIES,
    IN_ORDER,
    MANNERS,
    NEARBY,
    NOUNS,
    TIMES,
    TO,
    VERBS,
    WHEN_PAST,
    WITH,
    Preposition,
)
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
)

IN = Preposition("in", "in", "dat")
INTO = Preposition("into", "in", "acc")
TO_PLACE = Preposition("to", "zu", "dat")
ANNA = Name("Anna", "Anna", "f")
TOBIAS = Name("Tobias", "Tobias", "m")
TAVENDOR = Name("Tavendor", "Tavendor", "m", "Mr.")
KELMORIN = Name("Kelmorin", "Kelmorin", "f", "Mrs.")
TIME = {time.en: time for time in TIMES}
OFTEN = FREQUENCIES[0]
SLOWLY = MANNERS["m"][0]
LOUDLY = MANNERS["l"][0]


def np(det: str, noun: str, *adjectives: str, plural: bool = False, very: bool = False, owner: Name | None = None,
       of: Np | None = None, relative: Clause | None = None) -> Np:  # fmt: skip
    words = [ADJECTIVES[adjective] for adjective in adjectives]
    return Np(NOUNS[noun], det, plural, words, very, owner, of, relative)


def says(verb: str, subject: Phrase, accusative: Phrase | None = None, **parts: object) -> Clause:
    return Clause(VERBS[verb], subject, accusative=accusative, **parts)  # type: ignore[arg-type]


def is_(subject: Phrase, adjective: str, **parts: object) -> Clause:
    return Clause(BE, subject, predicate=Predicate(ADJECTIVES[adjective]), **parts)  # type: ignore[arg-type]


def at(preposition: Preposition, phrase: Phrase) -> Pp:
    return Pp(preposition, phrase)


def own(verb: str, phrase: Phrase) -> Pp:
    """The prepositional object of a verb, with the verb's own preposition."""
    preposition = VERBS[verb].preposition
    assert preposition is not None
    return Pp(preposition, phrase)


def sub(conjunction: str, clause: Clause) -> Sub:
    return Sub(CONJUNCTIONS[conjunction], clause)


def pair(*clauses: Clause | Segment) -> GrammarPair:
    return translate_tree(Sentence([c if isinstance(c, Segment) else Segment(c) for c in clauses]))


def who(noun: str, plural: bool = False) -> Relative:
    return Relative(NOUNS[noun], plural)


ICH, WE, HE, SHE, THEY = (Pronoun(word) for word in ("I", "we", "he", "she", "they"))

# Written by hand: construction, tree, English, German.
CASES: list[tuple[str, Clause | list[Segment], str, str]] = [
    ("weak adjective, accusative",
     says("see", np("the", "man", "old"), np("the", "dog")),
     "The old man sees the dog.", "Der alte Mann sieht den Hund."),
    ("mixed adjective, an",
     says("buy", np("a", "woman", "young"), np("a", "umbrella", "old")),
     "A young woman buys an old umbrella.", "Eine junge Frau kauft einen alten Regenschirm."),
    ("mixed adjective, neuter and masculine nominative",
     says("have", np("a", "child", "small"), np("a", "horse", "white")),
     "A small child has a white horse.", "Ein kleines Kind hat ein weißes Pferd."),
    ("strong adjective, mass noun",
     says("drink", TOBIAS, np("", "coffee", "hot")),
     "Tobias drinks hot coffee.", "Tobias trinkt heißen Kaffee."),
    ("strong adjective, plural",
     says("sell", np("", "farmer", plural=True), np("", "apple", "red", plural=True)),
     "Farmers sell red apples.", "Bauern verkaufen rote Äpfel."),
    ("numeral; weak masculine, accusative",
     says("look for", np("two", "policeman", "angry", plural=True), np("the", "boy")),
     "Two angry policemen look for the boy.", "Zwei wütende Polizisten suchen den Jungen."),
    ("many, dative plural",
     says("help", ICH, dative=np("many", "child", "sick", plural=True)),
     "I help many sick children.", "Ich helfe vielen kranken Kindern."),
    ("this, dative of a weak masculine",
     says("thank", np("this", "woman", plural=True), dative=np("this", "student")),
     "These women thank this student.", "Diese Frauen danken diesem Studenten."),
    ("every; two adjectives",
     says("love", np("every", "child"), np("the", "dog", "small", "black")),
     "Every child loves the small black dog.", "Jedes Kind liebt den kleinen schwarzen Hund."),
    ("no as subject",
     says("know", np("no", "man"), np("the", "secret")),
     "No man knows the secret.", "Kein Mann kennt das Geheimnis."),
    ("possessives of man and woman",
     says("visit", np("the", "king"), np("his", "sister")),
     "The king visits his sister.", "Der König besucht seine Schwester."),
    ("her, accusative masculine",
     says("visit", np("the", "queen"), np("her", "brother", "old")),
     "The queen visits her old brother.", "Die Königin besucht ihren alten Bruder."),
    ("very; adjective stem in -el",
     says("clean up", WE, np("the", "cellar", "dark", very=True)),
     "We clean up the very dark cellar.", "Wir räumen den sehr dunklen Keller auf."),
    ("expensive: teuer loses its e; high: hoch becomes hoh-",
     says("see", HE, Join([np("a", "ring", "expensive"), np("a", "tower", "high")])),
     "He sees an expensive ring and a high tower.", "Er sieht einen teuren Ring und einen hohen Turm."),
    ("genitive of a weak masculine",
     says("sleep", np("the", "dog", of=np("the", "neighbor"))),
     "The dog of the neighbor sleeps.", "Der Hund des Nachbarn schläft."),
    ("genitive with -es and adjective",
     says("repair", np("the", "gardener"), np("the", "roof", of=np("the", "house", "old"))),
     "The gardener repairs the roof of the old house.", "Der Gärtner repariert das Dach des alten Hauses."),
    ("genitive of a name; strong adjective after it",
     says("bark", np("", "dog", "small", owner=ANNA)),
     "Anna's small dog barks.", "Annas kleiner Hund bellt."),
    ("Herr in the nominative, Herrn elsewhere",
     says("trust", TAVENDOR, dative=Name("Balkorin", "Balkorin", "m", "Mr.")),
     "Mr. Tavendor trusts Mr. Balkorin.", "Herr Tavendor vertraut Herrn Balkorin."),
    ("dative before accusative; Frau",
     says("give", KELMORIN, np("a", "book"), dative=np("the", "child")),
     "Mrs. Kelmorin gives the child a book.", "Frau Kelmorin gibt dem Kind ein Buch."),
    ("definite objects; dative plural; separable verb",
     says("offer", np("the", "baker"), np("the", "cake"), dative=np("the", "guest", plural=True)),
     "The baker offers the guests the cake.", "Der Bäcker bietet den Gästen den Kuchen an."),
    ("dative pronoun, time before it not",
     says("show", ANNA, np("her", "house"), dative=THEY, time=TIME["today"]),
     "Anna shows them her house today.", "Anna zeigt ihnen heute ihr Haus."),
    ("fronted time inverts",
     says("see", np("the", "man"), np("the", "dog"), time=TIME["today"], front="time"),
     "Today the man sees the dog.", "Heute sieht der Mann den Hund."),
    ("fronted comment inverts",
     says("get up", np("the", "boy"), comment=COMMENTS[0]),
     "Unfortunately, the boy gets up.", "Leider steht der Junge auf."),
    ("time, manner, place around an indefinite object",
     says("read", np("the", "teacher"), np("a", "letter"), time=TIME["every day"], manner=SLOWLY,
          place=at(IN, np("the", "garden"))),
     "The teacher reads a letter slowly in the garden every day.",
     "Der Lehrer liest jeden Tag langsam im Garten einen Brief."),
    ("place after a definite object; frequency",
     says("read", np("the", "teacher"), np("the", "letter"), frequency=OFTEN, place=at(IN, np("the", "kitchen"))),
     "The teacher often reads the letter in the kitchen.", "Der Lehrer liest oft den Brief in der Küche."),
    ("fronted place",
     says("wait", THEY, place=at(NEARBY[1], np("the", "church")), front="place"),
     "In front of the church they wait.", "Vor der Kirche warten sie."),
    ("direction: in with accusative, contracted",
     says("go to", np("the", "girl"), prep=at(INTO, np("the", "house"))),
     "The girl goes into the house.", "Das Mädchen geht ins Haus."),
    ("direction: zu contracted, feminine; sein in the perfect",
     says("run to", np("the", "horse"), prep=at(TO_PLACE, np("the", "bridge")), tense="past"),
     "The horse ran to the bridge.", "Das Pferd ist zur Brücke gelaufen."),
    ("city names; travel",
     says("travel to", TOBIAS, prep=own("travel to", Name("Munich", "München")), tense="past"),
     "Tobias traveled to Munich.", "Tobias ist nach München gereist."),
    ("place or direction: on the table",
     says("lay on", np("the", "student"), np("the", "book"), prep=own("lay on", np("the", "table"))),
     "The student lays the book on the table.", "Der Student legt das Buch auf den Tisch."),
    ("lies on the table: dative",
     says("lie on", np("the", "book"), prep=own("lie on", np("the", "table"))),
     "The book lies on the table.", "Das Buch liegt auf dem Tisch."),
    ("prepositional object in the accusative",
     says("wait for", np("the", "princess"), prep=own("wait for", np("the", "hero"))),
     "The princess waits for the hero.", "Die Prinzessin wartet auf den Helden."),
    ("prepositional object in the dative, vom",
     says("dream of", ICH, prep=own("dream of", np("the", "lake", "big"))),
     "I dream of the big lake.", "Ich träume vom großen See."),
    ("genitive preposition",
     says("sleep", np("the", "guest", plural=True), time=at(DURING, np("the", "concert"))),
     "The guests sleep during the concert.", "Die Gäste schlafen während des Konzerts."),
    ("because of, fronted; plural perfect with sein",
     says("come back", WE, tense="past", time=at(BECAUSE_OF, np("the", "storm", "violent")), front="time"),
     "Because of the violent storm we came back.", "Wegen des heftigen Sturms sind wir zurückgekommen."),
    ("perfect with haben, irregular",
     says("write", SHE, np("three", "poem", plural=True), tense="past"),
     "She wrote three poems.", "Sie hat drei Gedichte geschrieben."),
    ("preterite of sein and haben",
     is_(np("the", "mouse", plural=True), "hungry", tense="past"),
     "The mice were hungry.", "Die Mäuse waren hungrig."),
    ("had: hatte",
     says("have", WE, np("a", "cat"), tense="past"),
     "We had a cat.", "Wir hatten eine Katze."),
    ("future",
     says("build", np("the", "brother", plural=True), np("a", "ship"), tense="future", time=TIME["next year"]),
     "The brothers will build a ship next year.", "Die Brüder werden nächstes Jahr ein Schiff bauen."),
    ("modal with infinitive at the end, separable",
     says("turn on", np("the", "child"), np("the", "lamp"), modal="can"),
     "The child can turn on the lamp.", "Das Kind kann die Lampe einschalten."),
    ("wants to, past",
     says("sell", np("the", "uncle"), np("his", "car"), modal="want", tense="past"),
     "The uncle wanted to sell his car.", "Der Onkel wollte sein Auto verkaufen."),
    ("must, past; would like to",
     [Segment(says("work", ICH, modal="must", tense="past")),
      Segment(says("sleep", np("my", "friend"), modal="would like"), link="but")],
     "I had to work, but my friend would like to sleep.", "Ich musste arbeiten, aber mein Freund möchte schlafen."),
    ("nicht after a definite object",
     says("find", np("the", "thief"), np("the", "key"), negated=True, tense="past"),
     "The thief did not find the key.", "Der Dieb hat den Schlüssel nicht gefunden."),
    ("kein, masculine accusative",
     says("need", np("the", "cook"), np("a", "spoon"), negated=True),
     "The cook does not need a spoon.", "Der Koch braucht keinen Löffel."),
    ("kein, plural with adjective",
     says("eat", THEY, np("", "pear", "sweet", plural=True), negated=True),
     "They do not eat sweet pears.", "Sie essen keine süßen Birnen."),
    ("nicht before a prepositional object, before the prefix",
     says("participate in", TAVENDOR, prep=own("participate in", np("the", "meeting")), negated=True),
     "Mr. Tavendor does not participate in the meeting.", "Herr Tavendor nimmt nicht an der Sitzung teil."),
    ("nicht before an adjective; cannot",
     [Segment(is_(ICH, "tired", negated=True)),
      Segment(says("sleep", ICH, modal="can", negated=True), link="and")],
     "I am not tired, and I cannot sleep.", "Ich bin nicht müde, und ich kann nicht schlafen."),
    ("kein with a nominal predicate",
     Clause(BE, TOBIAS, predicate=np("a", "doctor", "famous"), negated=True),
     "Tobias is not a famous doctor.", "Tobias ist kein berühmter Arzt."),
    ("relative clause, subject, on the subject",
     says("laugh", np("the", "woman", relative=says("help", who("woman"), dative=np("the", "man")))),
     "The woman who helps the man laughs.", "Die Frau, die dem Mann hilft, lacht."),
    ("relative clause, accusative",
     says("bark", np("the", "dog", relative=says("buy", ANNA, who("dog"), tense="past"))),
     "The dog that Anna bought barks.", "Der Hund, den Anna gekauft hat, bellt."),
    ("relative clause, dative plural",
     says("smile", np("the", "child", plural=True, relative=says("believe", WE, dative=who("child", True)))),
     "The children whom we believe smile.", "Die Kinder, denen wir glauben, lächeln."),
    ("relative clause with a preposition; no contraction before it",
     says("live in", HE, prep=own("live in", np("the", "house", relative=says(
         "work", ICH, place=at(IN, who("house")))))),
     "He lives in the house in which I work.", "Er wohnt in dem Haus, in dem ich arbeite."),
    ("whose: dessen and deren",
     says("cry", Np(NOUNS["king"], relative=says("disappear", Relative(NOUNS["king"], owned=np("", "ring")),
                                                   tense="past"))),
     "The king whose ring disappeared cries.", "Der König, dessen Ring verschwunden ist, weint."),
    ("whose, feminine antecedent, owned plural",
     says("greet", ICH, np("the", "aunt", relative=says(
         "dance", Relative(NOUNS["aunt"], owned=np("", "daughter", plural=True))))),
     "I greet the aunt whose daughters dance.", "Ich grüße die Tante, deren Töchter tanzen."),
    ("relative clauses nested at the end, extraposed behind the participle",
     says("catch", np("the", "cat"), np("the", "mouse", relative=says(
         "eat*", who("mouse"), np("the", "bread", relative=says("bake", ANNA, who("bread"), tense="past")),
         tense="past")), tense="past"),
     "The cat caught the mouse that ate the bread that Anna baked.",
     "Die Katze hat die Maus gefangen, die das Brot gefressen hat, das Anna gebacken hat."),
    ("subordinate clause first, then inversion; separable verb joined",
     [Segment(says("laugh", SHE), before=sub("because", says("get up", np("the", "boy"))))],
     "Because the boy gets up, she laughs.", "Weil der Junge aufsteht, lacht sie."),
    ("subordinate clause last; pronoun of the noun's gender",
     [Segment(says("repair", np("the", "man"), np("the", "lamp")),
              after=sub("although", is_(Pronoun("it", NOUNS["lamp"]), "old")))],
     "The man repairs the lamp although it is old.", "Der Mann repariert die Lampe, obwohl sie alt ist."),
    ("object pronoun, masculine thing",
     [Segment(says("open", np("the", "guest"), np("the", "umbrella"))),
      Segment(says("close", ANNA, Pronoun("it", NOUNS["umbrella"])), link="and then")],
     "The guest opens the umbrella, and then Anna closes it.",
     "Der Gast öffnet den Regenschirm, und dann schließt Anna ihn."),
    ("particle after an object pronoun",
     [Segment(says("repair", HE, np("the", "radio"), tense="past")),
      Segment(says("turn on", SHE, Pronoun("it", NOUNS["radio"]), tense="past"), link="and")],
     "He repaired the radio, and she turned it on.", "Er hat das Radio repariert, und sie hat es eingeschaltet."),
    ("when in the past: als; so: deshalb",
     [Segment(says("wake up", np("the", "bear"), tense="past"),
              after=Sub(WHEN_PAST, says("sing", np("the", "bird", plural=True), tense="past"))),
      Segment(says("run to", WE, tense="past", prep=at(TO_PLACE, np("the", "castle"))), link="so")],
     "The bear woke up when the birds sang, so we ran to the castle.",
     "Der Bär ist aufgewacht, als die Vögel gesungen haben, deshalb sind wir zum Schloss gelaufen."),
    ("nachdem with pluperfect",
     [Segment(says("cook", THEY, tense="past"),
              before=sub("after", says("arrive", np("the", "colleague", plural=True), tense="past perfect")))],
     "After the colleagues had arrived, they cooked.",
     "Nachdem die Kollegen angekommen waren, haben sie gekocht."),
    ("damit with a modal at the end; if: falls",
     [Segment(says("wait", ICH), after=sub("so~that", says("read", np("the", "child"), np("a", "book"), modal="can"))),
      Segment(says("work", ICH), before=sub("if", is_(HE, "sick")), link="but")],
     "I wait so that the child can read a book, but if he is sick, I work.",
     "Ich warte, damit das Kind ein Buch lesen kann, aber falls er krank ist, arbeite ich."),
    ("dass with two predicates and one auxiliary",
     says("say that", np("the", "judge"), complement=sub("that", says(
         "open", np("the", "soldier"), np("the", "door"), tense="past",
         then=says("see", np("the", "soldier"), np("the", "lion"), tense="past")))),
     "The judge says that the soldier opened the door and saw the lion.",
     "Der Richter sagt, dass der Soldat die Tür geöffnet und den Löwen gesehen hat."),
    ("two predicates with different auxiliaries",
     says("drive to", np("the", "pilot"), tense="past", prep=at(TO_PLACE, np("the", "airport")),
          then=says("meet", np("the", "pilot"), np("his", "son"), tense="past")),
     "The pilot drove to the airport and met his son.",
     "Der Pilot ist zum Flughafen gefahren und hat seinen Sohn getroffen."),
    ("two predicates under one modal; present with prefix",
     [Segment(says("wash", SHE, np("the", "cup", plural=True), modal="must",
                   then=says("clean up", SHE, np("the", "kitchen"), modal="must"))),
      Segment(says("invite", HE, np("the", "neighbor"), then=says("sing", HE)), link="and")],
     "She must wash the cups and clean up the kitchen, and he invites the neighbor and sings.",
     "Sie muss die Tassen waschen und die Küche aufräumen, und er lädt den Nachbarn ein und singt."),
    ("indirect questions",
     says("ask whether", np("the", "tourist"), np("the", "policeman"), complement=sub(
         "whether", says("depart", np("the", "train"), time=TIME["soon"], tense="future"))),
     "The tourist asks the policeman whether the train will depart soon.",
     "Der Tourist fragt den Polizisten, ob der Zug bald abfahren wird."),
    ("zu with and without a separable prefix",
     says("try to", ANNA, complement=Sub(TO, says("turn off", ANNA, np("the", "computer"), tense="infinitive"))),
     "Anna tries to turn off the computer.", "Anna versucht, den Computer auszuschalten."),
    ("um … zu",
     [Segment(says("go to", WE, prep=at(Preposition("to", "in", "acc"), np("the", "museum"))),
              after=Sub(IN_ORDER, says("see", WE, np("the", "picture", plural=True), tense="infinitive")))],
     "We go to the museum in order to see the pictures.", "Wir gehen ins Museum, um die Bilder zu sehen."),
    ("passive with von; past",
     says("read", np("the", "letter"), passive=True, prep=at(BY, np("the", "witness")), tense="past"),
     "The letter was read by the witness.", "Der Brief wurde vom Zeugen gelesen."),
    ("there is: es gibt; plural in English only",
     Clause(EXIST, There(), accusative=np("two", "bridge", plural=True), place=at(IN, np("the", "village")),
            time=TIME["today"], front="time"),
     "Today there are two bridges in the village.", "Heute gibt es im Dorf zwei Brücken."),
    ("comparison, in a main and in a subordinate clause",
     [Segment(Clause(BE, np("the", "car"), predicate=Predicate(ADJECTIVES["expensive"], than=np("the", "bicycle"))),
              after=sub("because", Clause(BE, np("the", "bicycle"),
                                          predicate=Predicate(ADJECTIVES["old"], than=np("the", "car")))))],
     "The car is more expensive than the bicycle because the bicycle is older than the car.",
     "Das Auto ist teurer als das Fahrrad, weil das Fahrrad älter ist als das Auto."),
    ("yes/no question, perfect",
     says("read", KELMORIN, np("the", "newspaper"), question=True, tense="past"),
     "Did Mrs. Kelmorin read the newspaper?", "Hat Frau Kelmorin die Zeitung gelesen?"),
    ("who; separable verb",
     says("call", Wh(True), np("the", "lawyer"), question=True),
     "Who calls the lawyer?", "Wer ruft den Anwalt an?"),
    ("whom, dative: wem",
     says("listen to", np("the", "student", plural=True), dative=Wh(True), question=True),
     "Whom do the students listen to?", "Wem hören die Studenten zu?"),
    ("what, with a modal",
     says("buy", np("the", "mother"), Wh(False), question=True, modal="can"),
     "What can the mother buy?", "Was kann die Mutter kaufen?"),
    ("which, accusative",
     says("wear", HE, np("which", "hat"), question=True),
     "Which hat does he wear?", "Welchen Hut trägt er?"),
    ("where: wo, where to: wohin",
     says("drive to", TOBIAS, wh="where to", question=True),
     "Where does Tobias drive?", "Wohin fährt Tobias?"),
    ("coordinated subject, plural verb; with",
     says("play", Join([ANNA, np("the", "boy")]), company=at(WITH, np("my", "brother")),
          time=at(AFTER, np("the", "exam"))),
     "Anna and the boy play with my brother after the exam.",
     "Anna und der Junge spielen nach der Prüfung mit meinem Bruder."),
    ("three objects: comma and und",
     says("buy", ICH, Join([np("the", "milk"), np("the", "cheese"), np("the", "bread")])),
     "I buy the milk, the cheese and the bread.", "Ich kaufe die Milch, den Käse und das Brot."),
]  # fmt: skip


def written(tree: Clause | list[Segment]) -> GrammarPair:
    return pair(*tree) if isinstance(tree, list) else pair(tree)


@pytest.mark.parametrize(("tree", "src", "trg"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_german_is_what_a_teacher_would_write(tree: Clause | list[Segment], src: str, trg: str) -> None:
    found = written(tree)
    assert (found.src, found.trg) == (src, trg)


def links(text: str) -> tuple[tuple[int, int], ...]:
    return tuple(tuple(map(int, link.split("-"))) for link in text.split())  # type: ignore[misc]


GOLD = [
    # The old man sees the dog . | Der alte Mann sieht den Hund .
    (says("see", np("the", "man", "old"), np("the", "dog")), "0-0 1-1 2-2 3-3 4-4 5-5 6-6"),
    # The boy gets up . | Der Junge steht auf .
    (says("get up", np("the", "boy")), "0-0 1-1 2-2 2-3 3-2 3-3 4-4"),
    # Anna did not see a dog . | Anna hat keinen Hund gesehen .
    (says("see", ANNA, np("a", "dog"), negated=True, tense="past"), "0-0 1-1 2-2 3-4 4-2 5-3 6-5"),
    # We go to the bridge . | Wir gehen zur Brücke .
    (says("go to", WE, prep=at(TO_PLACE, np("the", "bridge"))), "0-0 1-1 2-2 3-2 4-3 5-4"),
    # The woman who helps Mr. Tavendor laughs . | Die Frau , die Herrn Tavendor hilft , lacht .
    (says("laugh", np("the", "woman", relative=says("help", who("woman"), dative=TAVENDOR))),
     "0-0 1-1 2-3 3-6 4-4 5-5 6-8 7-9"),
    # The dog of the neighbor sleeps . | Der Hund des Nachbarn schläft .
    (says("sleep", np("the", "dog", of=np("the", "neighbor"))), "0-0 1-1 2-2 3-2 4-3 5-4 6-5"),
    # Because he woke up , she laughed . | Weil er aufgewacht ist , hat sie gelacht .
    ([Segment(says("laugh", SHE, tense="past"), before=sub("because", says("wake up", HE, tense="past")))],
     "0-0 1-1 2-2 2-3 3-2 3-3 4-4 5-6 6-5 6-7 7-8"),
    # Anna tries to turn on the lamp . | Anna versucht , die Lampe einzuschalten .
    (says("try to", ANNA, complement=Sub(TO, says("turn on", ANNA, np("the", "lamp"), tense="infinitive"))),
     "0-0 1-1 2-5 3-5 4-5 5-3 6-4 7-6"),
    # Does the cook drink milk in the evening ? | Trinkt der Koch am Abend Milch ?
    (says("drink", np("the", "cook"), np("", "milk"), time=TIME["in~the evening"], question=True),
     "1-1 2-2 3-0 4-5 5-3 6-3 7-4 8-6"),
    # He can open the door and close the window . | Er kann die Tür öffnen und das Fenster schließen .
    (says("open", HE, np("the", "door"), modal="can",
          then=says("close", HE, np("the", "window"), modal="can")),
     "0-0 1-1 2-4 3-2 4-3 5-5 6-8 7-6 8-7 9-9"),
]  # fmt: skip


@pytest.mark.parametrize(("tree", "expected"), GOLD)
def test_alignment_is_the_one_written_by_hand(tree: Clause | list[Segment], expected: str) -> None:
    assert written(tree).alignment == links(expected)


def test_words_are_split_from_final_punctuation_only() -> None:
    assert split_words("Unfortunately, Mr. Tavendor sleeps.") == [
        "Unfortunately",
        ",",
        "Mr.",
        "Tavendor",
        "sleeps",
        ".",
    ]
    assert split_words("Wer schläft?") == ["Wer", "schläft", "?"]
    assert split_words("") == []


@pytest.fixture(scope="module")
def sample() -> list[GrammarPair]:
    return list(generate(split="train", pairs=1560, min_words=3, max_words=80, seed=4))


def test_lengths_are_spread_evenly_over_the_range(sample: list[GrammarPair]) -> None:
    lengths = [len(found.src.split()) for found in sample]
    assert {length: lengths.count(length) for length in lengths} == dict.fromkeys(range(3, 81), 20)


def test_every_word_with_a_counterpart_is_aligned(sample: list[GrammarPair]) -> None:
    for found in sample:
        src, trg = split_words(found.src), split_words(found.trg)
        assert all(0 <= i < len(src) and 0 <= j < len(trg) for i, j in found.alignment)
        src_left = {src[i].lower() for i in set(range(len(src))) - {i for i, _ in found.alignment}}
        trg_left = {trg[j] for j in set(range(len(trg))) - {j for _, j in found.alignment}}
        # English do has no German counterpart; commas follow the rules of each language.
        assert src_left <= {"do", "does", "did", ","}
        assert trg_left <= {","}


def test_text_is_clean(sample: list[GrammarPair]) -> None:
    for found in sample:
        for text in (found.src, found.trg):
            assert re.fullmatch(r"\S+( \S+)*[.?]", text)
            assert not re.search(r" [,.?]|,,|,[.?]|\bund,", text)
            assert text[0].isupper()
        assert found.src[-1] == found.trg[-1]


def test_english_determines_german_and_german_english(sample: list[GrammarPair]) -> None:
    pairs = [*sample, *generate(split="dev", pairs=400, min_words=2, max_words=6), *generate(split="train", pairs=3000)]
    assert len({found.src for found in pairs}) == len({found.trg for found in pairs})
    assert len({found.src for found in pairs}) == len({(found.src, found.trg) for found in pairs})


def test_clauses_are_separated_by_commas_in_german(sample: list[GrammarPair]) -> None:
    openers = re.compile(r"[^,] (weil|obwohl|falls|nachdem|bevor|sobald|dass|ob|damit|dessen|deren)\b")
    for found in sample:
        for match in openers.finditer(found.trg):
            # Only und and aber may stand between the comma and the word.
            assert re.search(r", (und|aber)$", found.trg[: match.start() + 1]), found.trg


def test_no_english_sentence_comes_twice(sample: list[GrammarPair]) -> None:
    short = list(generate(split="train", pairs=1500, min_words=2, max_words=4))
    assert len({found.src for found in short}) == 1500
    assert len({found.src for found in sample}) == len(sample)


def test_splits_share_no_sentence_whatever_the_seed() -> None:
    found = {
        split: [p for seed in (1, 2) for p in generate(split=split, pairs=300, min_words=2, max_words=5, seed=seed)]
        for split in ("train", "dev", "test")
    }
    for split, pairs in found.items():
        assert {split_of(p.src) for p in pairs} == {split}
        for other in set(found) - {split}:
            assert not {p.src for p in pairs} & {p.src for p in found[other]}
            assert not {p.trg for p in pairs} & {p.trg for p in found[other]}


def test_some_names_of_the_test_split_never_stand_in_training_text() -> None:
    def surnames(split: str) -> set[str]:
        pairs = generate(split=split, pairs=600, min_words=3, max_words=8)
        return {name for found in pairs for name in re.findall(r"Mrs?\. (\w+)", found.src)}

    def held_out(name: str) -> bool:
        return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") % 5 == 0

    assert not any(map(held_out, surnames("train")))
    assert any(map(held_out, surnames("test")))


def test_the_same_arguments_give_the_same_pairs_in_every_process() -> None:
    code = (
        "from mtkit.text.grammar import generate; "
        "print([tuple(p) for p in generate(split='dev', pairs=40, min_words=3, max_words=30, seed=7)])"
    )
    outputs = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONIOENCODING": "utf-8"},
            capture_output=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    here = [tuple(p) for p in generate(split="dev", pairs=40, min_words=3, max_words=30, seed=7)]
    assert outputs[0] == outputs[1]
    assert outputs[0].decode().strip() == str(here)


def test_another_seed_gives_other_pairs() -> None:
    first, second = (list(generate(split="train", pairs=50, min_words=8, max_words=20, seed=seed)) for seed in (1, 2))
    assert not {found.src for found in first} & {found.src for found in second}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(split="valid", pairs=1), "synthetic: split: expected one of train, dev, test; got 'valid'"),
        (dict(split="dev", pairs=-1), "synthetic: pairs: expected 0 or more, got -1"),
        (dict(split="dev", pairs=1, min_words=1), "synthetic: min_words: the shortest sentence has 2 words, got 1"),
        (dict(split="dev", pairs=1, min_words=9, max_words=8), "synthetic: max_words: 8 is less than min_words 9"),
    ],
)
def test_senseless_arguments_are_refused_at_once(arguments: dict, message: str) -> None:
    with pytest.raises(RequestError) as caught:
        generate(**arguments)
    assert str(caught.value) == message


def test_too_small_a_space_is_reported() -> None:
    with pytest.raises(
        RequestError, match=r"^synthetic: only \d+ of 100000 different sentences of 2 to 2 words could "
    ):
        for _ in generate(split="dev", pairs=100_000, min_words=2, max_words=2):
            pass


def test_no_pair_is_asked_for() -> None:
    assert list(generate(split="train", pairs=0)) == []
