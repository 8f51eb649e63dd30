"""Prefix beam search for CTC, with an optional lexicon and language model.

A text's probability is the sum over all its paths (Graves et al., 2006). The search keeps, step by step, the most
likely prefixes, each with the probability of its paths that end in a blank and of those that end in its last character
(Hannun et al., 2014). It is exact if the beam holds every prefix. Sums are of logarithms. A language model is added to
the ranking of prefixes at the end of each word; it does not change probabilities.
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
"""Default number of prefixes kept."""

NONE = -1
"""Last class of the empty prefix."""


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
    """Return the most likely text of each sample found by the search, as :class:`~utils.postprocess.text.ctc.Text`.

    Its score is the probability of the text over all paths, without the language model's. The text of a sample with NaN
    is empty, with NaN as its score. Raises ConfigError if the outputs have another form, the charset another length, or
    the width is less than 1.

    Args:
        outputs, charset, blank, time_major, logits: as for :func:`~utils.postprocess.text.ctc.greedy`.
        width: number of prefixes kept at every step.
        lexicon: the allowed words; the text of a sample is empty if no remaining prefix is complete.
        language: probabilities of successive words, which are separated by spaces.
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
    """Return the classes of each text of :func:`beam` (names include the blank), and its probability's logarithm."""
    if width < 1:
        raise ConfigError(f"the beam's width {width} must be at least 1")
    with np.errstate(divide="ignore"):  # the logarithm of 0 is -inf
        steps = np.log(probabilities(batch_first(outputs, time_major), logits).astype(np.float64))
    scorer = _Language(language, names)
    return [_searched(one, names, blank % len(names), width, lexicon, scorer) for one in steps]


@dataclass
class _Beam:
    """The B prefixes that are kept.

    Attributes:
        ids: of the prefixes in :class:`_Prefixes`. last: their last classes. nodes: their nodes in the lexicon.
        blank, ink: logarithm of the probability of paths that end in a blank, and in the last class.
        bonus: sum of the language model's scores of complete words.
    """

    ids: Array
    last: Array
    nodes: Array
    blank: Array
    ink: Array
    bonus: Array

    @property
    def total(self) -> Array:
        """Logarithm of each prefix's probability."""
        return np.logaddexp(self.blank, self.ink)


class _Prefixes:
    """Numbers of prefixes; each is another prefix and one class."""

    def __init__(self) -> None:
        self.parents, self.classes = [NONE], [NONE]
        self._known: dict[tuple[int, int], int] = {}

    def longer(self, parent: int, last: int) -> int:
        """Return the number of a prefix with one more class."""
        number = self._known.setdefault((parent, last), len(self.parents))
        if number == len(self.parents):
            self.parents.append(parent)
            self.classes.append(last)
        return number

    def read(self, number: int) -> list[int]:
        """Return the classes of a prefix."""
        found = []
        while number:
            found.append(self.classes[number])
            number = self.parents[number]
        return found[::-1]


class _Language:
    """Scores of a language model for prefixes; 0 without a model."""

    def __init__(self, model: LanguageModel | None, names: Sequence[str]) -> None:
        self.model, self.names = model, names
        self.gap = names.index(BLANK) if model is not None and BLANK in names else NONE
        self._known: dict[int, float] = {}

    def gains(self, kept: _Beam, owners: Array, classes: Array, prefixes: _Prefixes) -> Array | float:
        """Return the scores added to prefixes extended by these classes, at the ends of words."""
        if self.gap == NONE:
            return 0.0
        found = np.zeros(len(owners))
        for place in np.flatnonzero(classes == self.gap).tolist():
            number = int(kept.ids[owners[place]])
            if number not in self._known:
                self._known[number] = self._of(prefixes.read(number), whole=False)
            found[place] = self._known[number]
        return found

    def rest(self, kept: _Beam, prefixes: _Prefixes) -> Array | float:
        """Return the score added to each prefix if the text ends with it."""
        self._known.clear()  # numbers of prefixes are those of one sample
        return np.array([self._of(prefixes.read(number), whole=True) for number in kept.ids.tolist()])

    def _of(self, classes: list[int], whole: bool) -> float:
        """Return the score of the last word, and, for a complete text, of its end."""
        if self.model is None:
            return 0.0
        text = "".join(self.names[one] for one in classes)
        words = text.split()
        last = self.model.step(words[:-1], words[-1]) if words and not text.endswith(BLANK) else 0.0
        return last + self.model.end(words) if whole else last


def _searched(
    steps: Array, names: Sequence[str], blank: int, width: int, lexicon: Lexicon | None, language: _Language
) -> tuple[list[int], float]:
    """Return the classes of the most likely text of T x C logarithms of probabilities, and its logarithm."""
    if np.isnan(steps).any():
        return [], float("nan")
    prefixes = _Prefixes()
    zero, never = np.zeros(1), np.full(1, -np.inf)
    kept = _Beam(np.zeros(1, np.int64), np.full(1, NONE), np.full(1, ROOT), zero, never, zero)
    for step in steps:
        kept = _advanced(kept, step, blank, width, prefixes, lexicon, language)
    total = kept.total
    if lexicon is not None:
        total = np.where(lexicon.ends(kept.nodes), total, -np.inf)
    best = int((total + kept.bonus + language.rest(kept, prefixes)).argmax())
    if total[best] == -np.inf:
        return [], -np.inf
    return prefixes.read(int(kept.ids[best])), float(total[best])


def _advanced(
    kept: _Beam, step: Array, blank: int, width: int, prefixes: _Prefixes, lexicon: Lexicon | None, language: _Language
) -> _Beam:
    """Return the prefixes after one more step of C logarithms."""
    total = kept.total
    stays = kept.last != NONE
    still = np.where(stays, kept.ink + step[kept.last], -np.inf)
    owners, classes, nodes = _longer(kept, step, blank, width, lexicon)
    again = classes == kept.last[owners]
    gains = np.where(again, kept.blank[owners], total[owners]) + step[classes]
    # a prefix in the beam may also be reached from its parent, if that is in the beam too
    place_of = {number: place for place, number in enumerate(kept.ids.tolist())}
    for place, number in enumerate(kept.ids.tolist()):
        parent = place_of.get(prefixes.parents[number]) if number else None
        if parent is not None:
            last = kept.last[place]
            came = kept.blank[parent] if last == kept.last[parent] else total[parent]
            still[place] = np.logaddexp(still[place], came + step[last])
            gains[(owners == parent) & (classes == last)] = -np.inf
    bonus = np.concatenate([kept.bonus, kept.bonus[owners] + language.gains(kept, owners, classes, prefixes)])
    chosen = _best(np.concatenate([np.logaddexp(total + step[blank], still), gains]) + bonus, width)
    old, new = chosen[chosen < len(total)], chosen[chosen >= len(total)] - len(total)
    numbers = [
        prefixes.longer(int(kept.ids[owner]), int(last)) for owner, last in zip(owners[new], classes[new], strict=True)
    ]
    return _Beam(
        np.concatenate([kept.ids[old], np.array(numbers, np.int64)]),
        np.concatenate([kept.last[old], classes[new]]),
        np.concatenate([kept.nodes[old], nodes[new]]),
        np.concatenate([total[old] + step[blank], np.full(len(new), -np.inf)]),
        np.concatenate([still[old], gains[new]]),
        bonus[chosen[np.argsort(chosen >= len(total), kind="stable")]],
    )


def _longer(kept: _Beam, step: Array, blank: int, width: int, lexicon: Lexicon | None) -> tuple[Array, Array, Array]:
    """Return the extensions of prefixes: indices of prefixes, classes, and nodes of the lexicon."""
    if lexicon is not None:
        ways = [lexicon.following(node) for node in kept.nodes.tolist()]
        owners = np.repeat(np.arange(len(ways)), [len(classes) for classes, _ in ways])
        return owners, np.concatenate([one for one, _ in ways]), np.concatenate([one for _, one in ways])
    # At most `width` + 1 extensions of a prefix by better classes count for less or not at all (its last class again,
    # and prefixes in the beam), so only the best 2 * `width` + 1 classes of the step can get into the beam.
    others = np.delete(np.arange(len(step)), blank)
    classes = others[_best(step[others], 2 * width + 1)]
    count = len(kept.ids)
    return np.repeat(np.arange(count), len(classes)), np.tile(classes, count), np.zeros(count * len(classes), np.int64)


def _best(values: Array, count: int) -> Array:
    """Return the indices of at most ``count`` highest finite values; the first of equal ones."""
    possible = np.flatnonzero(values > -np.inf)
    if len(possible) > count:
        likely = possible[np.argpartition(-values[possible], count - 1)[:count]]
        edge = values[likely].min()  # of equal values, the selection must not depend on the partition
        possible = possible[values[possible] >= edge]
    return possible[np.argsort(-values[possible], kind="stable")[:count]]
