"""Short fictional stories about people with questions on them, composed from word lists, for small models.

Several people have the same kinds of facts, so that an answer depends on the person in the question, and some questions
have no answer in the story.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np


def words(text: str) -> tuple[str, ...]:
    """Return the words of a line."""
    return tuple(text.split())


FIRST = words(
    "Ada Amir Anna Boris Carla Chen Clara Daniel Dora Elena Emil Farah Felix Greta Hanna Hugo Ines Ivan Jana "
    "Jonas Karim Lena Leo Lucas Maria Marta Milan Nadia Nina Nora Oscar Paula Petra Rosa Samir Sara Sofia Tariq "
    "Tom Vera"
)
LAST = words(
    "Abbott Baker Berg Black Brandt Castro Clarke Costa Doyle Ferrari Field Fischer Garcia Hall Hayes Hill Holm "
    "Ivanova Jansen Keller Kim Klein Lund Marsh Meyer Moreau Novak Ortiz Park Quinn Reed Rossi Silva Stone "
    "Tanaka Torres Vogel Walsh West Young"
)
CITIES = words(
    "Athens Bergen Berlin Bordeaux Boston Bremen Cairo Cardiff Chicago Cork Dakar Delhi Dublin Florence Geneva "
    "Ghent Hamburg Havana Helsinki Kyoto Lagos Leeds Lima Lisbon London Lyon Madrid Milan Naples Oslo Paris "
    "Porto Prague Quito Riga Rome Seoul Tokyo Turin Vienna"
)
JOBS = words(
    "architect baker barber biologist butcher carpenter chemist dentist doctor driver engineer farmer gardener "
    "judge lawyer librarian mechanic nurse painter pharmacist pilot plumber sailor tailor teacher translator"
)
COLOURS = words("black blue brown golden green grey orange purple red silver white yellow")
PETS = words("cat dog donkey duck goat goose hamster horse lizard parrot pony rabbit sheep snake turtle")
INSTRUMENTS = words("accordion bassoon cello clarinet drum flute guitar harp lute oboe organ piano trumpet tuba viola")
SPORTS = words("archery badminton boxing chess cricket fencing golf handball hockey judo rowing rugby sailing tennis")
DISHES = words("beans bread cake cheese curry dumplings noodles pancakes pasta pizza porridge rice salad soup stew")
MONTHS = words("January February March April May June July August September October November December")
FILLERS = (
    "It rained for most of the day.",
    "The market was full of people.",
    "Nobody knew what time it was.",
    "The train was late again.",
    "They met in the old library.",
    "The windows were open all night.",
)


class Relation(NamedTuple):
    """A kind of fact.

    Attributes:
        says: sentence parts after a person's name; ``{}`` is the answer.
        asks: questions; ``{}`` is the person's name. lists: word lists of the answer, which has one word of each.
    """

    says: tuple[str, ...]
    asks: tuple[str, ...]
    lists: tuple[Sequence[str], ...]


DAYS, YEARS = tuple(map(str, range(1, 29))), tuple(map(str, range(1900, 2020)))

RELATIONS = (
    Relation(
        ("was born in {}", "comes from {}", "grew up in {}"),
        ("Where was {} born?", "Where does {} come from?", "In which city did {} grow up?"),
        (CITIES,),
    ),
    Relation(
        ("lives in {}", "has a flat in {}", "moved to {}"),
        ("Where does {} live?", "Which city is the home of {}?", "Where did {} move?"),
        (CITIES,),
    ),
    Relation(
        ("works as a {}", "is a {} by trade", "earns money as a {}"),
        ("What is the job of {}?", "What does {} work as?", "How does {} earn money?"),
        (JOBS,),
    ),
    Relation(
        ("owns a {}", "keeps a {}", "bought a {}"),
        ("Which animal does {} own?", "What pet does {} keep?", "What did {} buy?"),
        (COLOURS, PETS),
    ),
    Relation(
        ("plays the {}", "is learning the {}", "practises the {}"),
        ("Which instrument does {} play?", "What is {} learning?", "What does {} practise?"),
        (INSTRUMENTS,),
    ),
    Relation(
        ("likes {}", "is fond of {}", "is good at {}"),
        ("Which sport does {} like?", "What is {} fond of?", "What is {} good at?"),
        (SPORTS,),
    ),
    Relation(
        ("cooked {}", "ate {}", "made {} for lunch"),
        ("What did {} cook?", "What did {} eat?", "What did {} make for lunch?"),
        (COLOURS, DISHES),
    ),
    Relation(
        ("arrived on {}", "has a birthday on {}", "got married on {}"),
        ("When did {} arrive?", "When is the birthday of {}?", "When did {} get married?"),
        (DAYS, MONTHS, YEARS),
    ),
)


class Question(NamedTuple):
    """A question on a story; ``answer`` is ``""`` and ``start``, its first character, -1 if the story has no answer."""

    text: str
    answer: str
    start: int


class Story(NamedTuple):
    """A story and its questions."""

    text: str
    questions: tuple[Question, ...]


class _Fact(NamedTuple):
    person: str
    relation: int
    wording: int
    answer: str


def story(chance: np.random.Generator, held_out: bool, people: int = 4, unanswerable: float = 0.25) -> Story:
    """Return a story of ``people`` persons, with one to three facts and a question on each.

    ``held_out`` uses only names that training stories do not have, a quarter of all; ``unanswerable`` is the share of
    questions without an answer in the story.
    """
    names = _names(chance, held_out, people)
    facts = [fact for name in names for fact in _facts(name, chance)]
    sentences = [_sentence(group, chance) for group in _grouped(facts, chance)]
    for filler in chance.choice(FILLERS, size=int(chance.integers(0, 3)), replace=False):
        sentences.insert(int(chance.integers(0, len(sentences) + 1)), (str(filler), []))
    text, places = "", dict[_Fact, int]()
    for sentence, marks in sentences:
        begin = len(text) + bool(text)
        text = f"{text} {sentence}" if text else sentence
        places |= {fact: begin + mark for fact, mark in marks}
    return Story(text, tuple(_question(name, facts, places, chance, unanswerable) for name in names))


def _names(chance: np.random.Generator, held_out: bool, people: int) -> list[str]:
    """Return full names with distinct first and last names, so that either identifies a person."""
    found: list[str] = []
    firsts, lasts = list(chance.permutation(len(FIRST))), list(chance.permutation(len(LAST)))
    while len(found) < people:
        first = firsts.pop()
        place = next(i for i, last in enumerate(lasts) if ((first * 7 + last * 3) % 4 == 0) == held_out)
        found.append(f"{FIRST[first]} {LAST[lasts.pop(place)]}")
    return found


def _facts(name: str, chance: np.random.Generator) -> Iterator[_Fact]:
    count = int(chance.integers(1, 4))
    for place in chance.choice(len(RELATIONS), size=count, replace=False):
        relation = RELATIONS[int(place)]
        answer = " ".join(some[int(chance.integers(0, len(some)))] for some in relation.lists)
        yield _Fact(name, int(place), int(chance.integers(0, len(relation.says))), answer)


def _grouped(facts: Sequence[_Fact], chance: np.random.Generator) -> list[list[_Fact]]:
    """Return the facts of each sentence, shuffled: one, or two of the same person."""
    groups: list[list[_Fact]] = []
    for fact in facts:
        last = groups[-1] if groups else []
        if len(last) == 1 and last[0].person == fact.person and chance.random() < 0.5:
            last.append(fact)
        else:
            groups.append([fact])
    return [groups[int(place)] for place in chance.permutation(len(groups))]


def _sentence(facts: Sequence[_Fact], chance: np.random.Generator) -> tuple[str, list[tuple[_Fact, int]]]:
    """Return a sentence, and the start of each fact's answer in it."""
    text, marks = facts[0].person, []
    for place, fact in enumerate(facts):
        before, after = RELATIONS[fact.relation].says[fact.wording].split("{}")
        if fact.answer[0] in "aeio" and before.endswith(" a "):
            before = f"{before[:-1]}n "
        text += f"{' and ' if place else ' '}{before}"
        marks.append((fact, len(text)))
        text += f"{fact.answer}{after}"
    return f"{text}.", marks


def _question(
    name: str, facts: Sequence[_Fact], places: dict[_Fact, int], chance: np.random.Generator, unanswerable: float
) -> Question:
    mine = {fact.relation: fact for fact in facts if fact.person == name}
    others = [place for place in range(len(RELATIONS)) if place not in mine]
    silent = chance.random() < unanswerable
    kinds = others if silent else list(mine)
    kind = kinds[int(chance.integers(0, len(kinds)))]
    if silent:
        asks = RELATIONS[kind].asks
        return Question(asks[int(chance.integers(0, len(asks)))].format(name), "", -1)
    fact = mine[kind]
    # the wording of the question must match that of the fact, because other wordings may have another meaning
    return Question(RELATIONS[kind].asks[fact.wording].format(name), fact.answer, places[fact])


def squad(stories: Sequence[Story]) -> dict[str, Any]:
    """Return stories in the format of SQuAD 2.0 (Rajpurkar et al., 2018), ready for ``json.dump``."""
    paragraphs = [
        {
            "context": story.text,
            "qas": [
                {
                    "id": f"{place}-{number}",
                    "question": question.text,
                    "is_impossible": not question.answer,
                    "answers": [{"text": question.answer, "answer_start": question.start}] if question.answer else [],
                }
                for number, question in enumerate(story.questions)
            ],
        }
        for place, story in enumerate(stories)
    ]
    return {"version": "v2.0", "data": [{"title": "stories", "paragraphs": paragraphs}]}


def vocabulary() -> list[str]:
    """Return BERT's special tokens and the word pieces for the stories, with letters and digits for other words."""
    lists = (FIRST, LAST, CITIES, JOBS, COLOURS, PETS, INSTRUMENTS, SPORTS, DISHES, MONTHS, DAYS, FILLERS)
    texts = [word for some in lists for word in some]
    texts += [wording for relation in RELATIONS for wording in (*relation.says, *relation.asks)]
    whole = {word for text in texts for word in re.findall(r"\w+", text.lower())} | {"an", "and"}
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    years = {year[:2] for year in YEARS} | {f"##{year[2:]}" for year in YEARS}
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    return [*special, *".,?!'", *sorted(whole | years | set(letters) | {f"##{letter}" for letter in letters})]
