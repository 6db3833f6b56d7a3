"""The words of the synthetic bitext: English words, their German counterparts, and how each of them inflects.

Nothing here knows about sentences. One English word has one German word and the other way round within a part of
speech (and within a noun class), so that an English sentence of the grammar has one translation.
"""

from __future__ import annotations

from typing import NamedTuple

CASES = ("nom", "acc", "dat", "gen")


class Preposition(NamedTuple):
    """A preposition and the case it governs; words of one English preposition are joined by `~`."""

    en: str
    de: str
    case: str


class Noun(NamedTuple):
    """A noun; `kinds` are its semantic classes, `sex` ("m", "f" or "") decides he and she.

    `location` and `direction` are the prepositions of a place: in the garden, into the garden.
    """

    en: str
    en_plural: str
    de: str
    gender: str
    genitive: str
    plural: str
    weak: bool
    kinds: frozenset[str]
    sex: str
    location: Preposition | None
    direction: Preposition | None

    def german(self, case: str, plural: bool) -> str:
        """The German form: -n in the dative plural, -(e)n outside the nominative of weak masculines."""
        if plural:
            return self.plural + "n" if case == "dat" and self.plural[-1] not in "ns" else self.plural
        if case == "gen" or (self.weak and case != "nom"):
            return self.genitive
        return self.de


class Adjective(NamedTuple):
    """An adjective; `stem` takes the endings, `rank` orders two of them (value, size, age, colour)."""

    en: str
    de: str
    stem: str
    rank: int
    kinds: frozenset[str]
    en_more: str
    de_more: str


class Verb(NamedTuple):
    """A verb in one of its uses; `frame` says what it takes (see `FRAMES`), subjects and objects are noun classes."""

    key: str
    base: str
    third: str
    past: str
    participle: str
    particle: str
    infinitive: str
    prefix: str
    de_first: str
    de_third: str
    de_participle: str
    auxiliary: str
    frame: str
    preposition: Preposition | None
    subjects: frozenset[str]
    objects: frozenset[str]
    targets: frozenset[str]
    flags: str


class Adverb(NamedTuple):
    """An adverb phrase: words correspond one to one, in order, unless joined by `~`."""

    en: str
    de: str
    tenses: str


class Modal(NamedTuple):
    """A modal verb; `auxiliary` tells whether its English form takes `not` itself and inverts."""

    third: str
    present: str
    past: str
    base: str
    auxiliary: bool
    de_present: tuple[str, str]
    de_past: tuple[str, str]


class Conjunction(NamedTuple):
    """A subordinator; `where` says which side of the main clause it may stand on (b before, a after)."""

    en: str
    de: str
    where: str


# --- Inflection -------------------------------------------------------------------------------------------------------

# Rows: masculine, feminine, neuter, plural; columns: nominative, accusative, dative, genitive.
GENDERS = ("m", "f", "n", "p")


def _table(rows: str) -> dict[tuple[str, str], str]:
    """(case, gender) → form, from four lines of four; `-` is the empty form."""
    lines = [line.split() for line in rows.strip().splitlines()]
    return {
        (case, gender): "" if form == "-" else form
        for gender, line in zip(GENDERS, lines, strict=True)
        for case, form in zip(CASES, line, strict=True)
    }


_DEFINITE = _table("der den dem des\n die die der der\n das das dem des\n die die den der")
_DER_ENDING = _table("er en em es\n e e er er\n es es em es\n e e en er")
_EIN_ENDING = _table("- en em es\n e e er er\n - - em es\n e e en er")
RELATIVE = _table("der den dem dessen\n die die der deren\n das das dem dessen\n die die denen deren")
ADJECTIVE_ENDING = {
    "weak": _table("e en en en\n e e en en\n e e en en\n en en en en"),
    "mixed": _table("er en en en\n e e en en\n es es en en\n en en en en"),
    "strong": _table("er en em en\n e e er er\n es es em en\n e e en er"),
}

# English determiner → (German stem, endings, declension of a following adjective)
_DETERMINERS = {
    "the": ("", "definite", "weak"),
    "this": ("dies", "der", "weak"),
    "every": ("jed", "der", "weak"),
    "which": ("welch", "der", "weak"),
    "a": ("ein", "ein", "mixed"),
    "no": ("kein", "ein", "mixed"),
    "my": ("mein", "ein", "mixed"),
    "his": ("sein", "ein", "mixed"),
    "her": ("ihr", "ein", "mixed"),
    "our": ("unser", "ein", "mixed"),
    "their": ("ihr", "ein", "mixed"),
    "some": ("einig", "der", "strong"),
    "many": ("viel", "der", "strong"),
    "several": ("mehrer", "der", "strong"),
    "two": ("zwei", "", "strong"),
    "three": ("drei", "", "strong"),
    "four": ("vier", "", "strong"),
    "five": ("fünf", "", "strong"),
    "": ("", "", "strong"),
}


def determiner(en: str, case: str, gender: str) -> tuple[str, str]:
    """The German determiner (perhaps empty) and the declension of the adjectives after it."""
    stem, endings, declension = _DETERMINERS[en]
    if endings == "definite":
        return _DEFINITE[case, gender], declension
    if endings == "der":
        return stem + _DER_ENDING[case, gender], declension
    if endings == "ein":
        return stem + _EIN_ENDING[case, gender], declension
    return stem, declension


CONTRACTIONS = {
    ("in", "dem"): "im",
    ("an", "dem"): "am",
    ("bei", "dem"): "beim",
    ("von", "dem"): "vom",
    ("zu", "dem"): "zum",
    ("zu", "der"): "zur",
    ("in", "das"): "ins",
    ("an", "das"): "ans",
}

# Key → English subject, English object, then German nominative, accusative, dative. "it" comes in three genders.
PRONOUNS = {
    "I": ("I", "me", "ich", "mich", "mir"),
    "we": ("we", "us", "wir", "uns", "uns"),
    "he": ("he", "him", "er", "ihn", "ihm"),
    "she": ("she", "her", "sie", "sie", "ihr"),
    "it m": ("it", "it", "er", "ihn", "ihm"),
    "it f": ("it", "it", "sie", "sie", "ihr"),
    "it n": ("it", "it", "es", "es", "ihm"),
    "they": ("they", "them", "sie", "sie", "ihnen"),
}

_AN_WORDS = ("honest", "hour")
_A_WORDS = ("useful", "university", "used")


def article_a(next_word: str) -> str:
    """`a` or `an`, by the sound that the next word starts with."""
    if next_word in _AN_WORDS:
        return "an"
    return "an" if next_word[0].lower() in "aeiou" and next_word not in _A_WORDS else "a"


def _with_s(word: str) -> str:
    if word.endswith(("s", "x", "z", "ch", "sh", "o")):
        return word + "es"
    if word.endswith("y") and word[-2] not in "aeiou":
        return word[:-1] + "ies"
    return word + "s"


def _with_ed(word: str) -> str:
    if word.endswith("e"):
        return word + "d"
    if word.endswith("y") and word[-2] not in "aeiou":
        return word[:-1] + "ied"
    return word + "ed"


# --- Nouns ------------------------------------------------------------------------------------------------------------

# english plural | gender (* = weak) German genitive plural | classes; "-" regular or unchanged, "!" no plural,
# lower case an ending, upper case the whole form.
_NOUNS = """
man men           m  Mann -es Männer             person
woman women       f  Frau - en                   person
boy -             m* Junge Jungen Jungen         person
girl -            n  Mädchen s -                 person
child children    n  Kind es er                  person,young
teacher -         m  Lehrer s -                  person,job
student -         m* Student Studenten Studenten person
doctor -          m  Arzt es Ärzte               person,job
nurse -           f  Krankenschwester - n        person,job
neighbor -        m* Nachbar Nachbarn Nachbarn   person,kin
friend -          m  Freund es e                 person,kin
brother -         m  Bruder s Brüder             person,kin
sister -          f  Schwester - n               person,kin
father -          m  Vater s Väter               person,kin
mother -          f  Mutter - Mütter             person,kin
son -             m  Sohn es Söhne               person,kin
daughter -        f  Tochter - Töchter           person,kin
uncle -           m  Onkel s -                   person,kin
aunt -            f  Tante - n                   person,kin
cousin -          m  Cousin s s                  person,kin
grandfather -     m  Großvater s Großväter       person,kin
grandmother -     f  Großmutter - Großmütter     person,kin
king -            m  König s e                   person
queen -           f  Königin - nen               person
prince -          m* Prinz Prinzen Prinzen       person
princess -        f  Prinzessin - nen            person
farmer -          m* Bauer Bauern Bauern         person,job
baker -           m  Bäcker s -                  person,job
cook -            m  Koch s Köche                person,job
gardener -        m  Gärtner s -                 person,job
painter -         m  Maler s -                   person,job
singer -          f  Sängerin - nen              person,job
actress -         f  Schauspielerin - nen        person,job
poet -            m  Dichter s -                 person,job
tourist -         m* Tourist Touristen Touristen person
pilot -           m* Pilot Piloten Piloten       person,job
policeman policemen m* Polizist Polizisten Polizisten person,job
soldier -         m* Soldat Soldaten Soldaten    person,job
judge -           m  Richter s -                 person,job
captain -         m  Kapitän s e                 person,job
guest -           m  Gast es Gäste               person
customer -        m* Kunde Kunden Kunden         person
colleague -       m* Kollege Kollegen Kollegen   person,kin
witness -         m* Zeuge Zeugen Zeugen         person
hero heroes       m* Held Helden Helden          person
president -       m* Präsident Präsidenten Präsidenten person
lawyer -          m  Anwalt s Anwälte            person,job
journalist -      m* Journalist Journalisten Journalisten person,job
scientist -       m  Wissenschaftler s -         person,job
musician -        m  Musiker s -                 person,job
thief thieves     m  Dieb es e                   person
dog -             m  Hund es e                   animal,pet
cat -             f  Katze - n                   animal,pet
horse -           n  Pferd es e                  animal,pet
bird -            m  Vogel s Vögel               animal,bird
mouse mice        f  Maus - Mäuse                animal
cow -             f  Kuh - Kühe                  animal,pet
pig -             n  Schwein s e                 animal,pet
lion -            m* Löwe Löwen Löwen            animal,wild
bear -            m* Bär Bären Bären             animal,wild
elephant -        m* Elefant Elefanten Elefanten animal,wild
monkey -          m* Affe Affen Affen            animal,wild
wolf wolves       m  Wolf es Wölfe               animal,wild
fox -             m  Fuchs es Füchse             animal,wild
hare -            m* Hase Hasen Hasen            animal
rabbit -          n  Kaninchen s -               animal,pet
goose geese       f  Gans - Gänse                animal,bird,pet
duck -            f  Ente - n                    animal,bird
goat -            f  Ziege - n                   animal,pet
donkey -          m  Esel s -                    animal,pet
tiger -           m  Tiger s -                   animal,wild
snake -           f  Schlange - n                animal,wild
frog -            m  Frosch es Frösche           animal
apple -           m  Apfel s Äpfel               food,fruit
pear -            f  Birne - n                   food,fruit
orange -          f  Orange - n                  food,fruit
tomato -          f  Tomate - n                  food,fruit
carrot -          f  Karotte - n                 food,fruit
potato -          f  Kartoffel - n               food
egg -             n  Ei s er                     food
cookie -          m  Keks es e                   food,baked
cake -            m  Kuchen s -                  food,baked
sausage -         f  Wurst - Würste              food
bread -           n  Brot es !                   food,baked,mass
cheese -          m  Käse s !                    food,mass
rice -            m  Reis es !                   food,mass
meat -            n  Fleisch es !                food,mass
soup -            f  Suppe - !                   food,mass
honey -           m  Honig s !                   food,mass
chocolate -       f  Schokolade - !              food,mass
butter -          f  Butter - !                  food,mass
milk -            f  Milch - !                   drink,mass
water -           n  Wasser s !                  drink,mass
coffee -          m  Kaffee s !                  drink,mass
tea -             m  Tee s !                     drink,mass
juice -           m  Saft es !                   drink,mass
beer -            n  Bier s !                    drink,mass
wine -            m  Wein s !                    drink,mass
book -            n  Buch es Bücher              text,flat,gift
letter -          m  Brief es e                  text,flat
newspaper -       f  Zeitung - en                readable,flat
magazine -        f  Zeitschrift - en            readable,flat
message -         f  Nachricht - en              text
poem -            n  Gedicht s e                 text
novel -           m  Roman s e                   text
report -          m  Bericht s e                 text,flat
story -           f  Geschichte - n              text,tale
lamp -            f  Lampe - n                   small,switchable,repairable,upright
chair -           m  Stuhl s Stühle              furniture,repairable,heavy
table -           m  Tisch es e                  surface,repairable,heavy
sofa -            n  Sofa s s                    furniture,heavy
bed -             n  Bett es en                  furniture,heavy
bench -           f  Bank - Bänke                furniture,repairable,heavy
shelf shelves     n  Regal s e                   surface,repairable,heavy
roof -            n  Dach es Dächer              part
wall -            f  Wand - Wände                wall,part
tree -            m  Baum es Bäume               climbable
bag -             f  Tasche - n                  small,container,upright
key -             m  Schlüssel s -               small,flat
picture -         n  Bild es er                  small,hangable,sight
clock -           f  Uhr - en                    small,repairable,hangable
phone -           n  Telefon s e                 small,repairable
camera -          f  Kamera - s                  small,repairable
radio radios      n  Radio s s                   small,switchable,repairable
computer -        m  Computer s -                small,switchable,repairable
knife knives      n  Messer s -                  small,washable,flat
spoon -           m  Löffel s -                  small,washable,flat
plate -           m  Teller s -                  small,washable,upright
cup -             f  Tasse - n                   small,washable,upright
glass -           n  Glas es Gläser              small,washable,upright
bottle -          f  Flasche - n                 small,upright,openable
ball -            m  Ball es Bälle               small,toy
toy -             n  Spielzeug s e               small,toy,repairable
gift -            n  Geschenk s e                small,gift,openable
flower -          f  Blume - n                   small,gift,sight
ring -            m  Ring es e                   small,gift
coin -            f  Münze - n                   small,flat
umbrella -        m  Regenschirm s e             small,openable
guitar -          f  Gitarre - n                 small,repairable
violin -          f  Geige - n                   small,repairable
box -             f  Kiste - n                   small,container,openable,upright
basket -          m  Korb es Körbe               small,container,upright
mirror -          m  Spiegel s -                 small,hangable
candle -          f  Kerze - n                   small,upright
blanket -         f  Decke - n                   small,washable,flat
pillow -          n  Kissen s -                  small,flat
window -          n  Fenster s -                 openable,part,repairable
door -            f  Tür - en                    openable,part,repairable
jacket -          f  Jacke - n                   clothing,hangable
shirt -           n  Hemd es en                  clothing
dress -           n  Kleid es er                 clothing,gift
hat -             m  Hut es Hüte                 clothing
coat -            m  Mantel s Mäntel             clothing,hangable
shoe -            m  Schuh s e                   clothing
sweater -         m  Pullover s -                clothing
scarf scarves     m  Schal s s                   clothing,gift
car -             n  Auto s s                    vehicle,drivable
bus -             m  Bus Busses Busse            vehicle,drivable,transport
truck -           m  Lastwagen s -               vehicle,drivable
bicycle -         n  Fahrrad s Fahrräder         vehicle
boat -            n  Boot es e                   vehicle,made
ship -            n  Schiff es e                 transport,made,sight
train -           m  Zug es Züge                 transport,sight
airplane -        n  Flugzeug s e                transport,sight
garden -          m  Garten s Gärten             place,outdoors,in:in,into:in
forest -          m  Wald es Wälder              place,outdoors,in:in,into:in
park -            m  Park s s                    place,outdoors,visited,in:in,to:in
beach -           m  Strand es Strände           place,outdoors,on:an,to:an
lake -            m  See s n                     place,outdoors,at:an,to:an
river -           m  Fluss es Flüsse             place,outdoors,at:an,to:zu
mountain -        m  Berg es e                   outdoors,climbable
island -          f  Insel - n                   place,outdoors,visited,on:auf,to:auf
bridge -          f  Brücke - n                  place,made,on:auf,to:zu
street -          f  Straße - n                  place,outdoors,on:auf
market -          m  Markt es Märkte             place,visited,at:auf,to:auf
valley -          n  Tal s Täler                 place,outdoors,in:in,into:in
house -           n  Haus es Häuser              place,building,lived,made,in:in,into:in
castle -          n  Schloss es Schlösser        place,building,lived,made,visited,in:in,to:zu
school -          f  Schule - n                  place,building,made,visited,at:in,to:in
church -          f  Kirche - n                  place,building,made,visited,in:in,to:in
museum -          n  Museum s Museen             place,building,visited,in:in,to:in
restaurant -      n  Restaurant s s              place,building,visited,in:in,to:in
hotel -           n  Hotel s s                   place,building,lived,made,visited,at:in,to:zu
station -         m  Bahnhof s Bahnhöfe          place,building,made,at:an,to:zu
airport -         m  Flughafen s Flughäfen       place,made,at:an,to:zu
library libraries f  Bibliothek - en             place,building,visited,in:in,to:in
hospital -        n  Krankenhaus es Krankenhäuser place,building,visited,made,in:in,to:in
office -          n  Büro s s                    place,room,in:in,to:in
factory -         f  Fabrik - en                 place,building,made,visited,in:in,to:zu
theater -         n  Theater s -                 place,building,visited,in:in,to:in
cinema -          n  Kino s s                    place,building,in:in,to:in
bakery bakeries   f  Bäckerei - en               place,building,visited,in:in,to:zu
store -           m  Laden s Läden               place,in:in,into:in
university universities f Universität - en       place,visited,at:an,to:zu
kitchen -         f  Küche - n                   place,room,in:in,into:in
room -            n  Zimmer s -                  place,room,in:in,into:in
cellar -          m  Keller s -                  place,room,in:in,into:in
city -            f  Stadt - Städte              place,town,lived,visited,in:in,to:in
village -         n  Dorf es Dörfer              place,town,lived,visited,in:in,to:in
tower -           m  Turm es Türme               made,sight,climbable
lesson -          f  Unterrichtsstunde - n       event
concert -         n  Konzert s e                 event
meeting -         f  Sitzung - en                event
party -           f  Feier - n                   event
wedding -         f  Hochzeit - en               event
exam -            f  Prüfung - en                event
trip -            f  Reise - n                   trip
break -           f  Pause - n                   pause
lecture -         f  Vorlesung - en              event
game -            n  Spiel s e                   event
storm -           m  Sturm s Stürme              weather,violent
rain -            m  Regen s !                   weather,violent
heat -            f  Hitze - !                   weather
snow -            m  Schnee s !                  weather
cold -            f  Kälte - !                   weather
question -        f  Frage - n                   abstract
answer -          f  Antwort - en                abstract
idea -            f  Idee - n                    abstract,believed
problem -         n  Problem s e                 abstract
plan -            m  Plan s Pläne                abstract,project
rule -            f  Regel - n                   abstract
mistake -         m  Fehler s -                  abstract
word -            n  Wort es Wörter              abstract
dream -           m  Traum es Träume             abstract,believed,tale
secret -          n  Geheimnis ses se            abstract,tale
song -            n  Lied es er                  song
"""


def _german_form(lemma: str, form: str) -> str:
    form = form.lstrip("-")
    return lemma + form if not form or form[0].islower() else form


def _parse_noun(line: str) -> Noun:
    en, en_plural, gender, de, genitive, plural, kinds_text = line.split()
    kinds = kinds_text.split(",")
    places = [kind.split(":") for kind in kinds if ":" in kind]
    location = direction = None
    if places:
        location = Preposition(places[0][0], places[0][1], "dat")
    if len(places) == 2:
        to_en, to_de = places[1]
        direction = Preposition(to_en, to_de, "dat" if to_de == "zu" else "acc")
    classes = {kind for kind in kinds if ":" not in kind}
    classes.add(en)
    if "text" in classes:
        classes.add("readable")
    sex = gender[0] if "person" in classes and gender[0] in "mf" else ""
    return Noun(
        en,
        _with_s(en) if en_plural == "-" else en_plural,
        de,
        gender[0],
        _german_form(de, genitive),
        "" if plural == "!" else _german_form(de, plural),
        gender.endswith("*"),
        frozenset(classes),
        sex,
        location,
        direction,
    )


NOUNS = {noun.en: noun for noun in map(_parse_noun, _NOUNS.strip().splitlines())}

# --- Adjectives -------------------------------------------------------------------------------------------------------

# english, German[/stem before endings], rank (0 value, 1 size, 2 age, 3 colour), noun classes, comparatives if any
_ADJECTIVES = """
tired       müde/müd        0 person,animal
happy       glücklich       0 person                 happier glücklicher
sad         traurig         0 person,song            sadder trauriger
friendly    freundlich      0 person                 friendlier freundlicher
clever      klug            0 person                 more_clever klüger
brave       mutig           0 person                 braver mutiger
famous      berühmt         0 person,visited         more_famous berühmter
rich        reich           0 person                 richer reicher
poor        arm             0 person                 poorer ärmer
strong      stark           0 person,wild            stronger stärker
sick        krank           0 person,pet
healthy     gesund          0 person                 healthier gesünder
hungry      hungrig         0 person,animal          hungrier hungriger
thirsty     durstig         0 person,pet
lazy        faul            0 person                 lazier fauler
hardworking fleißig         0 person                 more_hardworking fleißiger
polite      höflich         0 person                 more_polite höflicher
curious     neugierig       0 person,pet             more_curious neugieriger
patient     geduldig        0 person                 more_patient geduldiger
angry       wütend          0 person
nervous     nervös          0 person                 more_nervous nervöser
proud       stolz           0 person                 prouder stolzer
lonely      einsam          0 person
shy         schüchtern      0 person           more_shy schüchterner
honest      ehrlich         0 person                 more_honest ehrlicher
tall        groß            1 person                 taller größer
young       jung            2 person,animal          younger jünger
old         alt             2 person,animal,small,readable,clothing,vehicle,building,town,tree,table older älter
big         groß            1 animal,small,vehicle,furniture,surface,building,room,town,outdoors bigger größer
small       klein           1 animal,small,vehicle,furniture,surface,building,room,town smaller kleiner
wild        wild            0 wild
dangerous   gefährlich      0 wild,weather           more_dangerous gefährlicher
fast        schnell         0 vehicle,transport      faster schneller
loud        laut            0 animal,song,event      louder lauter
new         neu             2 small,readable,clothing,vehicle,furniture,surface,building,song,abstract newer neuer
modern      modern          0 vehicle,transport,building,furniture more_modern moderner
expensive   teuer/teur      0 small,clothing,vehicle,furniture more_expensive teurer
cheap       billig          0 small,clothing,vehicle,furniture cheaper billiger
heavy       schwer          0 container,furniture,surface heavier schwerer
light       leicht          0 container,toy          lighter leichter
beautiful   schön           0 small,clothing,town,outdoors,sight,visited,song more_beautiful schöner
dirty       schmutzig       0 washable,clothing,vehicle,room dirtier schmutziger
clean       sauber          0 washable,clothing,vehicle,room cleaner sauberer
broken      kaputt          0 repairable,vehicle
empty       leer            0 container,upright,room,building
useful      nützlich        0 small,vehicle,readable more_useful nützlicher
strange     seltsam         0 small,abstract,tale,event,clothing more_strange seltsamer
red         rot             3 small,clothing,vehicle,furniture,fruit
blue        blau            3 small,clothing,vehicle,furniture
green       grün            3 small,clothing,vehicle,furniture
yellow      gelb            3 small,clothing,vehicle
black       schwarz         3 pet,small,clothing,vehicle
white       weiß            3 pet,small,clothing,vehicle,building
brown       braun           3 pet,clothing,furniture
gray        grau            3 pet,clothing,vehicle
fresh       frisch          0 food
sweet       süß             0 fruit,baked
hot         heiß            0 coffee,tea,milk,water,soup hotter heißer
cold        kalt            0 drink,room             colder kälter
ripe        reif            0 fruit
delicious   lecker          0 food
warm        warm            0 clothing,room          warmer wärmer
long        lang            1 readable,event,trip,pause,song longer länger
short       kurz            1 readable,event,trip,pause,song shorter kürzer
interesting interessant     0 readable,abstract,event,trip,visited more_interesting interessanter
boring      langweilig      0 readable,event         more_boring langweiliger
important   wichtig         0 abstract,event         more_important wichtiger
difficult   schwierig       0 abstract,event         more_difficult schwieriger
funny       lustig          0 tale,song,toy          funnier lustiger
exciting    spannend        0 tale,event,trip        more_exciting spannender
quiet       ruhig           0 town,outdoors,room     quieter ruhiger
dark        dunkel/dunkl    0 room,building,forest   darker dunkler
high        hoch/hoh        1 mountain,tower,wall    higher höher
violent     heftig          0 violent
"""


def _parse_adjective(line: str) -> Adjective:
    en, german, rank, kinds, *more = line.split()
    de, _, stem = german.partition("/")
    en_more, de_more = more if more else ("", "")
    return Adjective(en, de, stem or de, int(rank), frozenset(kinds.split(",")), en_more.replace("_", " "), de_more)


ADJECTIVES = {adjective.en: adjective for adjective in map(_parse_adjective, _ADJECTIVES.strip().splitlines())}

# --- Verbs ------------------------------------------------------------------------------------------------------------

FRAMES = {
    "i": "nothing",
    "a": "an accusative object",
    "d": "a dative object",
    "da": "a dative and an accusative object",
    "p": "a prepositional object or a place with a preposition of the verb's own",
    "ap": "an accusative object and a prepositional phrase",
    "dir": "a direction, with the preposition of the place noun",
    "loc": "a location, with the preposition of the place noun",
    "that": "a clause with that",
    "ask": "an indirect question",
    "inf": "an infinitive with to",
}

# english base[_fixed words][+particle], past, participle ("-" regular) | German infinitive (prefix|stem), third person,
# participle, auxiliary h(aben) or s(ein) | frame[:preposition:präposition:case] | subjects | objects[>targets] | flags
# Flags: x takes no adjunct of place, s a state (no modal verb, no time), u not done on purpose (no modal verb),
# m slowly, quickly or carefully, l loudly or quietly, P has a passive.
_VERBS = """
sleep slept slept         schlafen schläft geschlafen h       i person,animal . .
work - -                  arbeiten arbeitet gearbeitet h      i person . m
laugh - -                 lachen lacht gelacht h              i person . xl
cry - -                   weinen weint geweint h              i person . l
dance - -                 tanzen tanzt getanzt h              i person . .
sing sang sung            singen singt gesungen h             i person . l
swim swam swum            schwimmen schwimmt geschwommen s    i person . x
smile - -                 lächeln lächelt gelächelt h         i person . .
cook - -                  kochen kocht gekocht h              i person . .
wait - -                  warten wartet gewartet h            i person . .
play - -                  spielen spielt gespielt h           i person . .
get_up got_up got_up      auf|stehen steht aufgestanden s     i person . x
wake_up woke_up woken_up  auf|wachen wacht aufgewacht s       i person,animal . xu
fall_asleep fell_asleep fallen_asleep ein|schlafen schläft eingeschlafen s i person,animal . u
arrive - -                an|kommen kommt angekommen s        i person,transport . xu
depart - -                ab|fahren fährt abgefahren s        i train,bus,ship . x
disappear - -             verschwinden verschwindet verschwunden s i person,animal . xu
come_back came_back come_back zurück|kommen kommt zurückgekommen s i person . x
study studied studied     studieren studiert studiert h       i student . x
bark - -                  bellen bellt gebellt h              i dog . l
fly flew flown            fliegen fliegt geflogen s           i bird,airplane . x
see saw seen              sehen sieht gesehen h a person,animal person,animal,small,vehicle,sight,building P
hear heard heard          hören hört gehört h                 a person,animal person,animal,song Pu
love loved loved          lieben liebt geliebt h              a person person,pet xsP
know knew known           kennen kennt gekannt h              a person person,visited,song,tale xs
visit visited visited     besuchen besucht besucht h          a person person,visited xP
find found found          finden findet gefunden h            a person small,pet P
buy bought bought         kaufen kauft gekauft h              a person small,food,drink,clothing,vehicle,text P
sell sold sold            verkaufen verkauft verkauft h       a person small,food,drink,clothing,vehicle P
read read read            lesen liest gelesen h               a person readable mP
write wrote written       schreiben schreibt geschrieben h    a person text mP
eat ate eaten             essen isst gegessen h               a person food mP
eat* ate eaten            fressen frisst gefressen h          a animal apple,carrot,meat,bread mP
drink drank drunk         trinken trinkt getrunken h          a person drink mP
carry - -                 tragen trägt getragen h             a person small mP
wear wore worn            tragen trägt getragen h             a person clothing xsP
repair - -                reparieren repariert repariert h    a person repairable,vehicle mP
drive drove driven        fahren fährt gefahren h             a person drivable x
wash - -                  waschen wäscht gewaschen h          a person washable,clothing,vehicle mP
build built built         bauen baut gebaut h                 a person made P
open - -                  öffnen öffnet geöffnet h            a person openable mxP
close closed closed       schließen schließt geschlossen h    a person window,door mxP
turn+on - -               ein|schalten schaltet eingeschaltet h a person switchable xP
turn+off - -              aus|schalten schaltet ausgeschaltet h a person switchable xP
call - -                  an|rufen ruft angerufen h           a person person xP
invite - -                ein|laden lädt eingeladen h         a person person xP
look_at - -               an|schauen schaut angeschaut h      a person person,animal,sight,small x
look_for - -              suchen sucht gesucht h              a person person,pet,small .
clean+up - -              auf|räumen räumt aufgeräumt h       a person room xmP
throw+away threw thrown   weg|werfen wirft weggeworfen h      a person small,readable,food xP
pick+up - -               ab|holen holt abgeholt h            a person person xP
chase - -                 jagen jagt gejagt h                 a animal animal P
catch caught caught       fangen fängt gefangen h             a person animal P
paint - -                 malen malt gemalt h                 a person animal,person,fruit mP
draw drew drawn           zeichnen zeichnet gezeichnet h      a person animal,building,upright mP
bake - -                  backen backt gebacken h             a person baked P
understand understood understood verstehen versteht verstanden h a person person,abstract xs
forget forgot forgotten   vergessen vergisst vergessen h      a person abstract,small xsP
explain - -               erklären erklärt erklärt h          a person abstract mP
need - -                  brauchen braucht gebraucht h        a person small,vehicle,clothing xs
have had had              haben hat gehabt h                  a person small,pet,vehicle xs
like - -                  mögen mag gemocht h                 a person person,animal,food,drink,song xs
admire - -                bewundern bewundert bewundert h     a person person,building,sight xsP
meet met met              treffen trifft getroffen h          a person person .
lose lost lost            verlieren verliert verloren h       a person small u
steal stole stolen        stehlen stiehlt gestohlen h         a person small,vehicle P
hide hid hidden           verstecken versteckt versteckt h    a person small P
greet - -                 grüßen grüßt gegrüßt h              a person person xP
kiss - -                  küssen küsst geküsst h              a person person xP
rescue - -                retten rettet gerettet h            a person person,animal xP
feed fed fed              füttern füttert gefüttert h         a person animal xmP
help - -                  helfen hilft geholfen h             d person person .
thank - -                 danken dankt gedankt h              d person person x
follow - -                folgen folgt gefolgt s              d person,animal person,animal x
congratulate - -          gratulieren gratuliert gratuliert h d person person x
trust - -                 vertrauen vertraut vertraut h       d person person xs
believe - -               glauben glaubt geglaubt h           d person person xs
answer - -                antworten antwortet geantwortet h   d person person xl
listen_to - -             zu|hören hört zugehört h            d person person .
obey - -                  gehorchen gehorcht gehorcht h       d young,pet person x
forgive forgave forgiven  verzeihen verzeiht verziehen h      d person person x
contradict - -            widersprechen widerspricht widersprochen h d person person x
belong_to - -             gehören gehört gehört h             d small,vehicle,building,pet person xs
give gave given           geben gibt gegeben h                da person person>small,text,food .
show showed shown         zeigen zeigt gezeigt h              da person person>small,readable,building .
send sent sent            schicken schickt geschickt h        da person person>text,gift x
bring brought brought     bringen bringt gebracht h           da person person>small,food,drink x
lend lent lent            leihen leiht geliehen h             da person person>small,vehicle,text x
offer - -                 an|bieten bietet angeboten h        da person person>food,drink,chair .
tell told told            erzählen erzählt erzählt h          da person person>tale .
promise - -               versprechen verspricht versprochen h da person person>gift,vehicle x
wait - -                  warten wartet gewartet h            p:for:auf:acc person person,transport .
think thought thought     denken denkt gedacht h              p:of:an:acc person person,abstract,pet x
dream - -                 träumen träumt geträumt h           p:of:von:dat person animal,visited,outdoors,vehicle x
talk - -                  sprechen spricht gesprochen h p:about:über:acc person abstract,event,text,person,weather l
talk - -                  sprechen spricht gesprochen h       p:to:mit:dat person person l
laugh - -                 lachen lacht gelacht h              p:at:über:acc person story,mistake,monkey l
believe - -               glauben glaubt geglaubt h           p:in:an:acc person believed xs
write wrote written       schreiben schreibt geschrieben h    p:about:über:acc person abstract,event,town,outdoors x
fight fought fought       kämpfen kämpft gekämpft h           p:against:gegen:acc person wild,king,soldier .
participate - -           teil|nehmen nimmt teilgenommen h    p:in:an:dat person event x
play - -                  spielen spielt gespielt h           p:with:mit:dat person,pet person,pet,toy .
work - -                  arbeiten arbeitet gearbeitet h      p:on:an:dat person project,text m
jump - -                  springen springt gesprungen s       p:onto:auf:acc person,pet surface,furniture x
climb - -                 klettern klettert geklettert s      p:onto:auf:acc person roof,climbable xm
come came come            kommen kommt gekommen s             p:from:aus:dat person town,CITY xs
live - -                  wohnen wohnt gewohnt h              p:in:in:dat person lived,CITY xs
sit sat sat               sitzen sitzt gesessen h             p:on:auf:dat person,pet furniture x
lie lay lain              liegen liegt gelegen h              p:on:auf:dat flat surface,furniture x
travel - -                reisen reist gereist s              p:to:nach:dat person CITY x
fly flew flown            fliegen fliegt geflogen s           p:to:nach:dat person CITY x
lay laid laid             legen legt gelegt h                 ap:on:auf:acc person flat>surface,furniture xm
place - -                 stellen stellt gestellt h           ap:on:auf:acc person upright>surface xm
hang hung hung            hängen hängt gehängt h              ap:on:an:acc person hangable>wall xm
go went gone              gehen geht gegangen s               dir person place x
drive drove driven        fahren fährt gefahren s             dir person visited,station,airport,beach,lake,river x
run ran run               laufen läuft gelaufen s             dir person,animal place x
return - -                zurück|kehren kehrt zurückgekehrt s dir person place x
stand stood stood         stehen steht gestanden h            loc person,animal place x
stay - -                  bleiben bleibt geblieben s          loc person,animal place x
say said said             sagen sagt gesagt h                 that person . x
believe - -               glauben glaubt geglaubt h           that person . xs
know knew known           wissen weiß gewusst h               that person . xs
hope - -                  hoffen hofft gehofft h              that person . xs
think thought thought     denken denkt gedacht h              that person . xs
claim - -                 behaupten behauptet behauptet h     that person . xs
notice - -                bemerken bemerkt bemerkt h          that person . xs
hear heard heard          hören hört gehört h                 that person . xs
know knew known           wissen weiß gewusst h               ask person . xs
ask - -                   fragen fragt gefragt h              ask person person x
try - -                   versuchen versucht versucht h       inf person . x
forget forgot forgotten   vergessen vergisst vergessen h      inf person . xs
promise - -               versprechen verspricht versprochen h inf person . xs
hope - -                  hoffen hofft gehofft h              inf person . xs
plan planned planned      planen plant geplant h              inf person . xs
decide - -                beschließen beschließt beschlossen h inf person . xs
"""

_FIRST_PERSON = {"wissen": "weiß", "mögen": "mag", "lächeln": "lächle"}


def _past(base: str, form: str) -> str:
    first, *rest = base.split()
    return " ".join([_with_ed(first), *rest]) if form == "-" else form.replace("_", " ")


def _parse_verb(line: str) -> Verb:
    english, past, participle, german, third, de_participle, auxiliary, frame, subjects, objects, flags = line.split()
    plain = english.rstrip("*").replace("_", " ")
    base, _, particle = plain.partition("+")
    first, *rest = base.split()
    frame, *governed = frame.split(":")
    prefix, _, stem = german.rpartition("|")
    past = _past(base, past)
    direct, _, targets = objects.partition(">")
    ending = {"that": " that", "ask": " whether", "inf": " to", "dir": " to", "loc": " at"}.get(frame, "")
    return Verb(
        english.replace("_", " ").replace("+", " ") + (f" {governed[0]}" if governed else ending),
        base,
        " ".join(["has" if first == "have" else _with_s(first), *rest]),
        past,
        past if participle == "-" else participle.replace("_", " "),
        particle,
        stem,
        prefix,
        _FIRST_PERSON.get(stem, stem[:-1] + "e" if stem.endswith("ern") else stem[:-1]),
        third,
        de_participle,
        "haben" if auxiliary == "h" else "sein",
        frame,
        Preposition(*governed) if governed else None,
        frozenset(subjects.split(",")),
        frozenset(direct.split(",")) - {"."},
        frozenset(targets.split(",")) - {""},
        flags,
    )


# "see", "wait for", "turn on", "say that", "go to", "stand at", "ask whether", "try to", "eat*" (animals) → verb
VERBS = {verb.key: verb for verb in map(_parse_verb, _VERBS.strip().splitlines())}

BE = Verb("be", "be", "is", "was", "been", "", "sein", "", "bin", "ist", "gewesen", "sein", "be", None,
          frozenset(), frozenset(), frozenset(), "xs")  # fmt: skip
EXIST = BE._replace(key="there is", infinitive="geben", de_first="gebe", de_third="gibt", de_participle="gegeben",
                    auxiliary="haben", frame="exist")  # fmt: skip

MODALS = {
    "can": Modal("can", "can", "could", "", True, ("kann", "können"), ("konnte", "konnten")),
    "must": Modal("must", "must", "had to", "", True, ("muss", "müssen"), ("musste", "mussten")),
    "should": Modal("should", "should", "", "", True, ("sollte", "sollten"), ("", "")),
    "may": Modal("may", "may", "", "", True, ("darf", "dürfen"), ("", "")),
    "want": Modal("wants to", "want to", "wanted to", "want to", False, ("will", "wollen"), ("wollte", "wollten")),
    "would like": Modal("would like to", "would like to", "", "", True, ("möchte", "möchten"), ("", "")),
}

# --- Small words ------------------------------------------------------------------------------------------------------

# Tenses: n present, p past, f future.
TIMES = tuple(
    Adverb(en, de, tenses)
    for en, de, tenses in (
        ("today", "heute", "npf"),
        ("yesterday", "gestern", "p"),
        ("tomorrow", "morgen", "f"),
        ("now", "jetzt", "n"),
        ("soon", "bald", "f"),
        ("this morning", "heute Morgen", "p"),
        ("this evening", "heute Abend", "nf"),
        ("every day", "jeden Tag", "n"),
        ("every week", "jede Woche", "n"),
        ("every evening", "jeden Abend", "np"),
        ("last week", "letzte Woche", "p"),
        ("last year", "letztes Jahr", "p"),
        ("last summer", "letzten Sommer", "p"),
        ("next week", "nächste Woche", "f"),
        ("next year", "nächstes Jahr", "f"),
        ("on Monday", "am Montag", "npf"),
        ("on Tuesday", "am Dienstag", "npf"),
        ("on Wednesday", "am Mittwoch", "npf"),
        ("on Thursday", "am Donnerstag", "npf"),
        ("on Friday", "am Freitag", "npf"),
        ("on Saturday", "am Samstag", "npf"),
        ("on Sunday", "am Sonntag", "npf"),
        ("in~the morning", "am Morgen", "np"),
        ("in~the evening", "am Abend", "np"),
        ("at~night", "nachts", "np"),
        ("in~the summer", "im Sommer", "npf"),
        ("in~the winter", "im Winter", "npf"),
        ("in~the spring", "im Frühling", "npf"),
        ("in~the fall", "im Herbst", "npf"),
    )
)
FREQUENCIES = (Adverb("often", "oft", "np"), Adverb("sometimes", "manchmal", "np"), Adverb("always", "immer", "np"),
               Adverb("rarely", "selten", "np"), Adverb("usually", "meistens", "np"))  # fmt: skip
MANNERS = {
    "m": (Adverb("slowly", "langsam", ""), Adverb("quickly", "schnell", ""), Adverb("carefully", "vorsichtig", "")),
    "l": (Adverb("loudly", "laut", ""), Adverb("quietly", "leise", "")),
}
COMMENTS = (Adverb("unfortunately", "leider", "npf"), Adverb("apparently", "anscheinend", "npf"),
            Adverb("of~course", "natürlich", "npf"), Adverb("fortunately", "zum~Glück", "npf"))  # fmt: skip
WH_ADVERBS = {"where": "wo", "where to": "wohin", "why": "warum", "when": "wann", "how": "wie"}

NEARBY = (Preposition("behind", "hinter", "dat"), Preposition("in~front~of", "vor", "dat"),
          Preposition("next~to", "neben", "dat"))  # fmt: skip
DURING = Preposition("during", "während", "gen")
AFTER = Preposition("after", "nach", "dat")
BEFORE = Preposition("before", "vor", "dat")
BECAUSE_OF = Preposition("because~of", "wegen", "gen")
BY = Preposition("by", "von", "dat")
WITHOUT = Preposition("without", "ohne", "acc")
WITH = Preposition("with", "mit", "dat")

CONJUNCTIONS = {
    en: Conjunction(en, de, where)
    for en, de, where in (
        ("because", "weil", "ba"),
        ("although", "obwohl", "ba"),
        ("while", "während", "ba"),
        ("when", "wenn", "ba"),
        ("if", "falls", "ba"),
        ("before", "bevor", "ba"),
        ("after", "nachdem", "ba"),
        ("as~soon~as", "sobald", "ba"),
        ("until", "bis", "a"),
        ("so~that", "damit", "a"),
        ("that", "dass", ""),
        ("whether", "ob", ""),
        ("where", "wo", ""),
        ("why", "warum", ""),
    )
}
WHEN_PAST = Conjunction("when", "als", "ba")
TO = Conjunction("", "", "")
IN_ORDER = Conjunction("in~order", "um", "a")

# How a clause is added to the one before: English words, German words, and whether German inverts after them.
LINKS = {"and": ("and", "und", False), "but": ("but", "aber", False),
         "so": ("so", "deshalb", True), "and then": ("and then", "und dann", True)}  # fmt: skip

# --- Names ------------------------------------------------------------------------------------------------------------

_WOMEN = """
Anna Clara Emma Eva Frieda Greta Hannah Helena Ida Johanna Julia Katharina Klara Laura Lena Lina Maria Marlene Martha
Mia Monika Nina Olivia Paula Petra Rosa Sara Sophie Susanne Theresa Ursula Vera
"""
_MEN = """
Adam Anton Benjamin Bruno Daniel David Emil Erik Felix Florian Georg Gustav Jakob Jan Johann Jonas Karl Konrad Leo Lukas
Martin Oliver Oskar Otto Paul Peter Robert Simon Stefan Theodor Tobias Viktor Walter Wilhelm
"""
WOMEN = tuple(_WOMEN.split())
MEN = tuple(_MEN.split())
CITIES = {
    "Berlin": "Berlin", "Hamburg": "Hamburg", "Munich": "München", "Cologne": "Köln", "Vienna": "Wien",
    "Zurich": "Zürich", "Prague": "Prag", "Rome": "Rom", "Paris": "Paris", "London": "London", "Madrid": "Madrid",
    "Lisbon": "Lissabon", "Warsaw": "Warschau", "Athens": "Athen", "Moscow": "Moskau", "Brussels": "Brüssel",
    "Copenhagen": "Kopenhagen", "Venice": "Venedig", "Milan": "Mailand", "Florence": "Florenz", "Dresden": "Dresden",
    "Leipzig": "Leipzig", "Frankfurt": "Frankfurt", "Boston": "Boston", "Chicago": "Chicago", "Tokyo": "Tokio",
    "Beijing": "Peking", "Cairo": "Kairo", "Istanbul": "Istanbul", "Oslo": "Oslo", "Stockholm": "Stockholm",
}  # fmt: skip
# A surname is one syllable of each line.
_SYLLABLES = """
Bal Bren Cal Dar Del Fal Fen Gar Hal Har Jor Kal Kel Lan Lor Mal Mer Nor Or Pel Ral Sel Tav Tor Val Vel Wen Yar Zal Zel
a ber da den e fan ga hel i ka len lo mar mo na ni or per ra ri san ta ten to va vin
bach beck dal dor dov feld gan hoff kamp lin man mer mond ner rin row sen ster tin ton ven wald win zel
"""
SURNAME_STARTS, SURNAME_MIDDLES, SURNAME_ENDS = (tuple(line.split()) for line in _SYLLABLES.strip().splitlines())
