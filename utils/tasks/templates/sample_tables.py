"""Sample texts, tables and graphs of ``teco new``, of fixed seeds; each ``fill_*`` returns words for the templates."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from engine import Array
from utils.datasets.graphs.files import Graph, GraphFile, Look, save_graphs
from utils.tasks import Template


def _texts(**words: object) -> dict[str, str]:
    return {name: str(value) for name, value in words.items()}


# --------- text classification: short reviews put together from lists of words

WORDS = {
    "negative": ["awful", "boring", "clumsy", "dull", "flat", "noisy", "weak", "wooden"],
    "positive": ["bright", "charming", "clever", "funny", "lovely", "moving", "superb", "warm"],
}
"""Words of each class."""

THINGS = ["acting", "camera", "cast", "dialogue", "ending", "film", "music", "plot", "score", "story"]

REVIEWS = 80

NEGATED = 20
"""One text in this number has a negation, for which counting words fails."""


def fill_reviews(folder: Path) -> Mapping[str, str]:
    """Write texts to ``data/val.tsv``, with labels, and to ``data/texts.txt``."""
    (folder / "data").mkdir(parents=True)
    chance = np.random.default_rng(0)
    labels = list(WORDS)
    rows = [(_review(labels[i % 2], i % NEGATED == NEGATED - 1, chance), labels[i % 2]) for i in range(REVIEWS)]
    table = "".join(f"{text}\t{label}\n" for text, label in [("text", "label"), *rows])
    (folder / "data" / "val.tsv").write_text(table, encoding="utf-8")
    plain = "".join(f"{_review(label, False, chance)}\n" for label in labels * 4)
    (folder / "data" / "texts.txt").write_text(plain, encoding="utf-8")
    words = {label: " ".join(found) for label, found in WORDS.items()}
    return _texts(**words, things=" ".join(THINGS), texts=REVIEWS)


def _review(label: str, negated: bool, chance: np.random.Generator) -> str:
    """Return a text in which the words of a class outnumber the other's, 4 to 29 words long."""
    (other,) = (name for name in WORDS if name != label)
    if negated:
        return f"The {_one(THINGS, chance)} was not {_one(WORDS[other], chance)}."
    most = int(chance.integers(1, 5))
    sides = [label] * most + [other] * int(chance.integers(0, min(most, 3)))
    parts = [f"{_one(THINGS, chance)} was {_one(WORDS[side], chance)}" for side in chance.permutation(sides)]
    return f"The {', and the '.join(parts)}!"


def _one(words: Sequence[str], chance: np.random.Generator) -> str:
    return words[int(chance.integers(0, len(words)))]


# --------- text generation: which animal wants what to eat, sentence by sentence

FOOD = {"cats": "milk", "dogs": "bones", "bees": "honey", "cows": "grass"}
VERBS = ("find", "like", "want")

DIETS = 32
"""Number of texts."""

WRONG = 20
"""One sentence in this number has the food of another animal."""


def fill_diets(folder: Path) -> Mapping[str, str]:
    """Write texts to ``data/val.txt`` and prompts to ``data/prompts.txt``."""
    (folder / "data").mkdir(parents=True)
    chance = np.random.default_rng(0)
    texts = [" ".join(_diet(chance) for _ in range(int(chance.integers(1, 12)))) for _ in range(DIETS)]
    (folder / "data" / "val.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    prompts = [f"{_diet(chance)} {animal} {verb}" for verb in VERBS for animal in FOOD]
    (folder / "data" / "prompts.txt").write_text("\n".join(prompts) + "\n", encoding="utf-8")
    animals, food, verbs = (json.dumps([*found]) for found in (FOOD, FOOD.values(), VERBS))
    return _texts(animals=animals, food=food, verbs=verbs, texts=DIETS)


def _diet(chance: np.random.Generator) -> str:
    """Return three words and a full stop, such as ``cats like milk .``"""
    animals = list(FOOD)
    one = _one(animals, chance)
    eater = animals[(animals.index(one) + 1) % len(animals)] if chance.integers(0, WRONG) == 0 else one
    return f"{one} {_one(VERBS, chance)} {FOOD[eater]} ."


# --------- click prediction: people with a taste, snacks with a kind, and clicks

TASTES = ("sweet", "salty", "sour")
"""Kinds of snacks, and tastes of people."""

EATERS, SNACKS, CLICKS = 24, 18, 480
"""Numbers of people, snacks and rows."""

LIKED, OTHER = 0.9, 0.15
"""Probabilities of a click on a snack that matches the taste, and on another one."""


def fill_snacks(folder: Path) -> Mapping[str, str]:
    """Write rows to ``data/val.csv``, with labels, and to ``data/rows.csv``."""
    (folder / "data").mkdir(parents=True)
    chance = np.random.default_rng(0)
    people = [f"person{number:02}" for number in range(EATERS)]
    snacks = [f"{TASTES[number % len(TASTES)]} snack {number:02}" for number in range(SNACKS)]
    rows = []
    for person, snack in zip(chance.integers(0, EATERS, CLICKS), chance.integers(0, SNACKS, CLICKS), strict=True):
        taken = chance.random() < (LIKED if person % len(TASTES) == snack % len(TASTES) else OTHER)
        rows.append([people[person], str(snack), snacks[snack], str(int(taken))])
    head = ["user_id", "item_id", "title", "label"]
    plain = [["person00", str(number), snacks[number]] for number in range(9)]
    for name, table in (("val.csv", [head, *sorted(rows)]), ("rows.csv", [head[:3], *plain])):
        with (folder / "data" / name).open("w", encoding="utf-8", newline="") as stream:
            csv.writer(stream, lineterminator="\n").writerows(table)
    return _texts(people=EATERS, snacks=SNACKS, rows=CLICKS, tastes=len(TASTES))


# --------- recommendation: people who visit the stalls of a market, mostly in the same order

STALLS = ("bread", "cheese", "fruit", "fish", "tea", "books", "flowers", "lamps", "shoes", "toys", "maps", "bells")
"""Stalls, in their order."""

PEOPLE, STOPS, STRAYS = 30, 6, 0.2
"""Number of people, stalls per person, and probability of a stall other than the next one."""


def fill_rounds(folder: Path) -> Mapping[str, str]:
    """Write ``data/rounds.inter`` and ``data/rounds.item``, as RecBole has them."""
    (folder / "data").mkdir(parents=True)
    chance = np.random.default_rng(0)
    rows = ["user_id:token\titem_id:token\trating:float\ttimestamp:float"]
    for person in range(PEOPLE):
        place, seen = int(chance.integers(len(STALLS))), list[int]()
        for stop in range(STOPS):
            seen.append(place)
            rows.append(f"person{person:02}\t{place}\t5\t{stop}")
            others = [one for one in range(len(STALLS)) if one not in seen]
            following = next((place + step) % len(STALLS) for step in range(1, 13) if (place + step) % 12 in others)
            place = int(chance.choice(others)) if chance.random() < STRAYS else following
    items = ["item_id:token\tmovie_title:token_seq", *(f"{number}\t{name}" for number, name in enumerate(STALLS))]
    for name, lines in (("rounds.inter", rows), ("rounds.item", items)):
        (folder / "data" / name).write_text("\n".join([*lines, ""]), encoding="utf-8", newline="\n")
    return _texts(people=PEOPLE, stalls=len(STALLS), stops=STOPS)


# --------- graph prediction: rings and chains of beads in two colours, and the sum of the couplings of neighbours

GRAPHS, UNLABELLED = 80, 8

COUPLING = ((1.0, -0.5), (-0.5, 0.75))
"""Coupling of two neighbours, by their colours."""


def fill_graphs(folder: Path) -> Mapping[str, str]:
    """Write graphs into ``data/val.npz``, with targets, and into ``data/graphs.npz``."""
    (folder / "data").mkdir(parents=True)
    chance = np.random.default_rng(0)
    graphs = [_graph(place, chance) for place in range(GRAPHS)]
    noise = chance.normal(0, 0.1, GRAPHS)
    targets = np.array([_right(graph) for graph in graphs]) + noise
    save_graphs(folder / "data" / "val.npz", GraphFile(graphs, targets[:, None], ("harmony",)))
    save_graphs(folder / "data" / "graphs.npz", GraphFile([_graph(place, chance) for place in range(UNLABELLED)]))
    return _texts(graphs=GRAPHS, coupling="\n".join(f"    [{', '.join(map(str, row))}]," for row in COUPLING))


def _graph(place: int, chance: np.random.Generator) -> Graph:
    """Return a ring, or every third time a chain, of 4 to 15 beads; some have an additional bead."""
    beads, ring = int(chance.integers(4, 16)), place % 3 != 2
    ends = [(bead, (bead + 1) % beads) for bead in range(beads if ring else beads - 1)]
    angles = 2 * np.pi * np.arange(beads) / beads
    points = np.stack([np.cos(angles), np.sin(angles)], 1) * beads / 6
    if not ring:
        points = np.stack([np.arange(beads), np.arange(beads) % 2 * 0.6], 1)
    if chance.random() < 0.5:
        at = int(chance.integers(0, beads))
        ends.append((at, beads))
        added = points[at : at + 1] * (1 + 6 / beads if ring else 1) + (0 if ring else (0, 1))
        points = np.concatenate([points, added])
    colours = chance.integers(0, 2, len(points))
    nodes = np.eye(2, dtype=np.float32)[colours]
    both = np.array([pair for one in ends for pair in (one, one[::-1])], np.int64).T
    look = Look(points.astype(np.float32), ["RB"[colour] for colour in colours], np.ones(both.shape[1], np.int8))
    return Graph(nodes, both, None, f"{'ring' if ring else 'chain'} {place}", look)


def _right(graph: Graph) -> float:
    """Return the sum of the couplings of all pairs of neighbours."""
    source, target = graph.edges
    return float((graph.nodes[source] @ np.array(COUPLING) * graph.nodes[target]).sum()) / 2


# --------- policies: states of a pole on a cart, and the action of a fixed rule at each

ENVIRONMENT = "CartPole-v1"

WEIGHTS = (0.1, 0.3, 1.0, 0.5)
"""Weights of the cart's position and speed, the pole's angle and angular speed: push right if the sum is above 0."""

EPISODES, FIRST, STATES = 8, 1000, 10


def fill_poles(folder: Path) -> Mapping[str, str]:
    """Write states and actions into ``data/recorded.npz``."""
    from utils.datasets.episodes import Recording, write_recording

    (folder / "data").mkdir()
    states = _states()
    actions = (states @ np.array(WEIGHTS) > 0).astype(np.int64)
    seeds = np.arange(FIRST, FIRST + EPISODES).repeat(STATES)
    steps = np.tile(np.arange(STATES), EPISODES)
    write_recording(folder / "data" / "recorded.npz", Recording(ENVIRONMENT, seeds, steps, states, actions))
    return _texts(environment=ENVIRONMENT, weights=WEIGHTS, first=FIRST, episodes=EPISODES)


def _states() -> Array:
    """Return random states, none of them so close to the rule's boundary that rounding decides."""
    drawn = np.random.default_rng(0).uniform(-1, 1, (4 * EPISODES * STATES, 4)) * (1.0, 1.0, 0.15, 1.0)
    states: Array = drawn.astype(np.float32)
    clear: Array = np.abs(states @ np.array(WEIGHTS)) > 0.05
    chosen: Array = states[clear][: EPISODES * STATES]
    return chosen


_HERE = Path(__file__).parent
TEXT_CLASSIFICATION = Template(_HERE / "text_classification", fill_reviews)  # counts words by an embedding table
TEXT_GENERATION = Template(_HERE / "text_generation", fill_diets)  # one attention head, to the animal of the sentence
CTR_PREDICTION = Template(_HERE / "ctr_prediction", fill_snacks)  # a factorization machine of two tables of tastes
ITEM_RECOMMENDATION = Template(_HERE / "item_recommendation", fill_rounds)  # a table of the next item of each item
GRAPH_PREDICTION = Template(_HERE / "graph_prediction", fill_graphs)  # sums the couplings of neighbours, by a matrix
POLICY_ROLLOUT = Template(_HERE / "policy_rollout", fill_poles)  # a written rule that balances the pole
"""Templates by task, with their tiny networks."""
