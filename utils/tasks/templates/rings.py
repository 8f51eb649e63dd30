"""Sample graphs of graph prediction: rings and chains of beads in two colours, and the sum of the couplings of
neighbours."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from utils.datasets.graphs.files import Graph, GraphFile, Look, save_graphs

GRAPHS, UNLABELLED = 80, 8

COUPLING = ((1.0, -0.5), (-0.5, 0.75))
"""Coupling of two neighbours, by their colours."""


def fill(folder: Path) -> Mapping[str, str]:
    """Write graphs into ``data/val.npz``, with targets, and into ``data/graphs.npz``; return further words."""
    (folder / "data").mkdir(parents=True)
    chance = np.random.default_rng(0)
    graphs = [_graph(place, chance) for place in range(GRAPHS)]
    noise = chance.normal(0, 0.1, GRAPHS)
    targets = np.array([_right(graph) for graph in graphs]) + noise
    save_graphs(folder / "data" / "val.npz", GraphFile(graphs, targets[:, None], ("harmony",)))
    save_graphs(folder / "data" / "graphs.npz", GraphFile([_graph(place, chance) for place in range(UNLABELLED)]))
    rows = "\n".join(f"    [{', '.join(map(str, row))}]," for row in COUPLING)
    return {"graphs": str(GRAPHS), "coupling": rows}


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
        points = np.concatenate(
            [points, points[at : at + 1] * (1 + 6 / beads if ring else 1) + (0 if ring else (0, 1))]
        )
    colours = chance.integers(0, 2, len(points))
    nodes = np.eye(2, dtype=np.float32)[colours]
    both = np.array([pair for one in ends for pair in (one, one[::-1])], np.int64).T
    look = Look(points.astype(np.float32), ["RB"[colour] for colour in colours], np.ones(both.shape[1], np.int8))
    return Graph(nodes, both, None, f"{'ring' if ring else 'chain'} {place}", look)


def _right(graph: Graph) -> float:
    """Return the sum of the couplings of all pairs of neighbours."""
    source, target = graph.edges
    return float((graph.nodes[source] @ np.array(COUPLING) * graph.nodes[target]).sum()) / 2


"""A network that sums the couplings of neighbours, by a matrix."""
