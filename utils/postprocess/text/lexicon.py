"""Allowed words of a text, as a tree of their characters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from engine import Array, ConfigError

ROOT = 0
"""Node of the tree at the start of every word."""

BLANK = " "
"""Separator of words, if the model has it."""


class Lexicon:
    """Words as a tree: from each node, the classes that may follow and the nodes they lead to.

    A text is one of the words, or, if the charset has a space, words separated by one space. Duplicates and empty words
    are ignored. ``names`` has a text per class, empty for CTC's blank, as
    :func:`~utils.postprocess.text.ctc.class_texts` returns them. Words with a character that is not a class are
    ``unwritable`` and cannot be recognised. Raises ConfigError if no word can be written with the classes.
    """

    def __init__(self, words: Iterable[str], names: Sequence[str]) -> None:
        classes = {text: place for place, text in enumerate(names) if text}
        self.unwritable: list[str] = []
        children: list[dict[int, int]] = [{}]
        ends = {0: False}
        for word in dict.fromkeys(word for word in words if word):
            path = [classes.get(character, -1) for character in word]
            if -1 in path:
                self.unwritable.append(word)
                continue
            node = ROOT
            for step in path:
                if step not in children[node]:
                    children[node][step] = len(children)
                    ends[len(children)] = False
                    children.append({})
                node = children[node][step]
            ends[node] = True
        if len(children) == 1:
            example = f", such as {self.unwritable[0]!r}" if self.unwritable else ""
            raise ConfigError(f"no word of the lexicon can be written with the model's characters{example}")
        ways, whole = _automaton(children, list(ends.values()), classes.get(BLANK))
        self._ends = np.array(whole)
        self._classes = [np.array(list(one), np.int64) for one in ways]
        self._nodes = [np.array(list(one.values()), np.int64) for one in ways]

    def following(self, node: int) -> tuple[Array, Array]:
        """Return the classes that may follow a node and the nodes they lead to, int64 both."""
        return self._classes[node], self._nodes[node]

    def ends(self, nodes: Array) -> Array:
        """Return whether a word ends at each node."""
        return self._ends[nodes]


def _automaton(
    children: list[dict[int, int]], ends: list[bool], gap: int | None
) -> tuple[list[dict[int, int]], list[bool]]:
    """Return the transitions from each node by class, and whether a word ends there.

    A space leads from a word's end to the root. If a word continues with a space after another word ("new", "new
    york"), the space leads to both nodes, which are combined to a further node after those of the tree.
    """
    groups: dict[frozenset[int], int] = {}
    ways: list[dict[int, int]] = []
    whole: list[bool] = []
    waiting = [frozenset([node]) for node in range(len(children))]
    for nodes in waiting:
        leads: dict[int, set[int]] = {}
        for node in nodes:
            for step, child in children[node].items():
                leads.setdefault(step, set()).add(child)
            if gap is not None and ends[node]:
                leads.setdefault(gap, set()).add(ROOT)
        found = {}
        for step, places in leads.items():
            group = frozenset(places)
            if len(group) > 1 and group not in groups:
                groups[group] = len(waiting)
                waiting.append(group)
            found[step] = groups[group] if len(group) > 1 else next(iter(group))
        ways.append(found)
        whole.append(any(ends[node] for node in nodes))
    return ways, whole
