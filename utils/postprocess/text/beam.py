"""The likeliest text under CTC, by prefix beam search, with or without a lexicon and a model of the language.

A text's probability is the sum over all paths that say it (Graves et al., 2006). The search keeps, step by step, the
likeliest beginnings, each with the probability of the paths that end in a blank and of those that end in its last
character (Hannun et al., 2014). With a beam wide enough to hold every beginning it is exact. Sums are of logarithms.
A model of the language adds to what a beginning is kept by, once per word that is whole; it changes no probability.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine import Array, ConfigError
from utils.postprocess.text.ctc import Text, batch_first, class_texts, probabilities
from utils.postprocess.text.language_model import LanguageModel
from utils.postprocess.text.lexicon import BLANK, ROOT, Lexicon

WIDTH = 16
"""Beginnings that are kept where no number is given."""

NONE = -1
"""Stands for the last class of the empty text."""


def beam(
    outputs: Array,
    charset: Sequence[str],
    blank: int = 0,
    *,
    width: int = WIDTH,
    lexicon: Lexicon | None = None,
    language: LanguageModel | None = None,
    time_major: bool = False,
    logits: bool | None = None,
) -> list[Text]:
    """Return the likeliest text of each sample that the search finds.

    Args:
        outputs, charset, blank, time_major, logits: as :func:`~utils.postprocess.text.ctc.greedy` takes them.
        width: beginnings that are kept at every step.
        lexicon: only its words are read; of a sample where no beginning that is left is whole, nothing is.
        language: says how likely words follow each other; words are what blanks part.

    Returns:
        One :class:`~utils.postprocess.text.ctc.Text` per sample; its score is the probability of the text, all paths
        together, without the language's. A sample with NaN has no text, and NaN for its score.

    Raises:
        ConfigError: the outputs have another form, the charset another length, or the width is less than 1.
    """
    names = class_texts(outputs, charset, blank)
    found = beam_classes(
        outputs, names, blank, width=width, lexicon=lexicon, language=language, time_major=time_major, logits=logits
    )
    return [Text("".join(names[place] for place in classes), float(np.exp(score))) for classes, score in found]


def beam_classes(
    outputs: Array,
    names: Sequence[str],
    blank: int = 0,
    *,
    width: int = WIDTH,
    lexicon: Lexicon | None = None,
    language: LanguageModel | None = None,
    time_major: bool = False,
    logits: bool | None = None,
) -> list[tuple[list[int], float]]:
    """Do what :func:`beam` does, and return the classes of each text and the logarithm of its probability.

    Args:
        names: what each class writes, the blank among them.
    """
    if width < 1:
        raise ConfigError(f"the beam's width {width} must be at least 1")
    with np.errstate(divide="ignore"):  # what is impossible has the logarithm -inf
        steps = np.log(probabilities(batch_first(outputs, time_major), logits).astype(np.float64))
    told = _Language(language, names)
    return [_searched(one, names, blank % len(names), width, lexicon, told) for one in steps]


@dataclass
class _Front:
    """The beginnings that are kept, B of them.

    Attributes:
        ids: of the beginnings in :class:`_Prefixes`. last: their last classes. nodes: where in the lexicon they are.
        blank, ink: logarithm of the probability of paths ending in a blank, and in the last class.
        said: what the language adds for the words that are whole.
    """

    ids: Array
    last: Array
    nodes: Array
    blank: Array
    ink: Array
    said: Array

    @property
    def total(self) -> Array:
        """The logarithm of each beginning's probability."""
        found: Array = np.logaddexp(self.blank, self.ink)
        return found


class _Prefixes:
    """Numbers for beginnings: each is another one and a class more."""

    def __init__(self) -> None:
        self.parents, self.classes = [NONE], [NONE]
        self._known: dict[tuple[int, int], int] = {}

    def longer(self, parent: int, last: int) -> int:
        """Return the number of a beginning that is one class longer than another."""
        number = self._known.setdefault((parent, last), len(self.parents))
        if number == len(self.parents):
            self.parents.append(parent)
            self.classes.append(last)
        return number

    def read(self, number: int) -> list[int]:
        """Return the classes of a beginning."""
        found = []
        while number:
            found.append(self.classes[number])
            number = self.parents[number]
        return found[::-1]


class _Language:
    """What a model of the language adds to beginnings; nothing where there is none.

    Args:
        model: the language. names: texts of the classes.
    """

    def __init__(self, model: LanguageModel | None, names: Sequence[str]) -> None:
        self.model, self.names = model, names
        self.gap = names.index(BLANK) if model is not None and BLANK in names else NONE
        self._known: dict[int, float] = {}

    def gains(self, front: _Front, owners: Array, classes: Array, prefixes: _Prefixes) -> Array | float:
        """Return what is added where beginnings are made longer by these classes: something where a word ends."""
        if self.gap == NONE:
            return 0.0
        found = np.zeros(len(owners))
        for place in np.flatnonzero(classes == self.gap).tolist():
            number = int(front.ids[owners[place]])
            if number not in self._known:
                self._known[number] = self._of(prefixes.read(number), whole=False)
            found[place] = self._known[number]
        return found

    def rest(self, front: _Front, prefixes: _Prefixes) -> Array | float:
        """Return what is added to each beginning if the text ends with it."""
        self._known.clear()  # numbers of beginnings are of one sample
        return np.array([self._of(prefixes.read(number), whole=True) for number in front.ids.tolist()])

    def _of(self, classes: list[int], whole: bool) -> float:
        """Return what the last word adds, and, of a whole text, its end."""
        if self.model is None:
            return 0.0
        text = "".join(self.names[one] for one in classes)
        words = text.split()
        last = self.model.step(words[:-1], words[-1]) if words and not text.endswith(BLANK) else 0.0
        return last + self.model.end(words) if whole else last


def _searched(
    steps: Array, names: Sequence[str], blank: int, width: int, lexicon: Lexicon | None, language: _Language
) -> tuple[list[int], float]:
    """Return the classes of the likeliest text of T x C logarithms of probabilities, and its own logarithm."""
    if np.isnan(steps).any():
        return [], float("nan")
    prefixes = _Prefixes()
    zero, never = np.zeros(1), np.full(1, -np.inf)
    front = _Front(np.zeros(1, np.int64), np.full(1, NONE), np.full(1, ROOT), zero, never, zero)
    for step in steps:
        front = _advanced(front, step, blank, width, prefixes, lexicon, language)
    total = front.total
    if lexicon is not None:
        total = np.where(lexicon.ends(front.nodes), total, -np.inf)
    best = int((total + front.said + language.rest(front, prefixes)).argmax())
    if total[best] == -np.inf:
        return [], -np.inf
    return prefixes.read(int(front.ids[best])), float(total[best])


def _advanced(
    front: _Front,
    step: Array,
    blank: int,
    width: int,
    prefixes: _Prefixes,
    lexicon: Lexicon | None,
    language: _Language,
) -> _Front:
    """Return the beginnings after one more step of C logarithms."""
    total = front.total
    stays = front.last != NONE
    still = np.where(stays, front.ink + step[front.last], -np.inf)
    owners, classes, nodes = _longer(front, step, blank, width, lexicon)
    again = classes == front.last[owners]
    gains = np.where(again, front.blank[owners], total[owners]) + step[classes]
    # a beginning that is kept already may also be reached from the one it is longer than, where that is kept too
    place_of = {number: place for place, number in enumerate(front.ids.tolist())}
    for place, number in enumerate(front.ids.tolist()):
        parent = place_of.get(prefixes.parents[number]) if number else None
        if parent is not None:
            last = front.last[place]
            came = front.blank[parent] if last == front.last[parent] else total[parent]
            still[place] = np.logaddexp(still[place], came + step[last])
            gains[(owners == parent) & (classes == last)] = -np.inf
    said = np.concatenate([front.said, front.said[owners] + language.gains(front, owners, classes, prefixes)])
    chosen = _best(np.concatenate([np.logaddexp(total + step[blank], still), gains]) + said, width)
    old, new = chosen[chosen < len(total)], chosen[chosen >= len(total)] - len(total)
    numbers = [
        prefixes.longer(int(front.ids[owner]), int(last)) for owner, last in zip(owners[new], classes[new], strict=True)
    ]
    return _Front(
        np.concatenate([front.ids[old], np.array(numbers, np.int64)]),
        np.concatenate([front.last[old], classes[new]]),
        np.concatenate([front.nodes[old], nodes[new]]),
        np.concatenate([total[old] + step[blank], np.full(len(new), -np.inf)]),
        np.concatenate([still[old], gains[new]]),
        said[chosen[np.argsort(chosen >= len(total), kind="stable")]],
    )


def _longer(front: _Front, step: Array, blank: int, width: int, lexicon: Lexicon | None) -> tuple[Array, Array, Array]:
    """Return the ways to make a beginning longer: whose, by which class, to which node of the lexicon."""
    if lexicon is not None:
        ways = [lexicon.following(node) for node in front.nodes.tolist()]
        owners = np.repeat(np.arange(len(ways)), [len(classes) for classes, _ in ways])
        return owners, np.concatenate([one for one, _ in ways]), np.concatenate([one for _, one in ways])
    # Of one beginning at most `width` ways by better classes count for less or not at all (its last class again, and
    # beginnings that are kept already), so no class beyond the best of the step can get into the beam.
    others = np.delete(np.arange(len(step)), blank)
    classes = others[_best(step[others], 2 * width + 1)]
    count = len(front.ids)
    return np.repeat(np.arange(count), len(classes)), np.tile(classes, count), np.zeros(count * len(classes), np.int64)


def _best(values: Array, count: int) -> Array:
    """Return the places of the highest values that are possible, at most so many; the first of equal ones."""
    possible = np.flatnonzero(values > -np.inf)
    if len(possible) > count:
        likely = possible[np.argpartition(-values[possible], count - 1)[:count]]
        edge = values[likely].min()  # equal ones at the edge: which are kept must not hang on the partition
        possible = possible[values[possible] >= edge]
    return possible[np.argsort(-values[possible], kind="stable")[:count]]
