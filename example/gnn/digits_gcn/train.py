"""Train the classifier of the digits' graph: seeded, one thread, the same weights every time (4 seconds).

The same two layers are also trained without the graph, to show what the edges contribute. The test nodes are only used
to print both accuracies, never to choose anything.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from engine import add_version
from tecoinfer_modelzoo.extra import needed
from utils.datasets.graphs.files import SPLITS, TEST, TRAIN
from utils.datasets.graphs.node_graphs import read_node_graph
from utils.pipeline import cli
from utils.preprocess.graphs.neighbours import SYMMETRIC, Neighbours

with needed(__file__):
    import torch
    from torch.nn import functional

    from utils.export.networks.graph_models import GraphNetwork, GraphSizes
    from utils.export.networks.training import repeatable, save

HERE = Path(__file__).resolve().parent
SIZES = GraphSizes("gcn", features=64, hidden=64, classes=10)
STEPS, RATE, DECAY, DROP = 150, 0.01, 5e-4, 0.3


def trained(
    x: torch.Tensor, edges: torch.Tensor, weights: torch.Tensor, y: torch.Tensor, known: torch.Tensor
) -> GraphNetwork:
    """Return a network trained on the labelled nodes; features and edges of the other nodes are used (transductive)."""
    torch.manual_seed(0)
    network = GraphNetwork(SIZES)
    for conv in network.convs:
        torch.nn.init.xavier_uniform_(conv.lin.weight)
    first, second = network.convs
    optimizer = torch.optim.Adam(network.parameters(), RATE, weight_decay=DECAY)
    for _ in range(STEPS):
        hidden = functional.dropout(functional.relu(first.scatter(x, edges, weights)), DROP)
        loss = functional.cross_entropy(second.scatter(hidden, edges, weights)[known], y[known])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return network.eval()


def main() -> int:
    """Train, print both accuracies and write the weights."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_version(parser)
    parser.add_argument("--data_path", type=Path, default=HERE / "data" / "digits_graph.npz")
    parser.add_argument("--out", type=Path, default=HERE / "digits_gcn.pth")
    args = parser.parse_args()
    repeatable()
    graph = read_node_graph(args.data_path)
    parts, y = graph.found.parts, torch.from_numpy(graph.found.labels)
    known, asked = (torch.from_numpy(np.flatnonzero(parts == SPLITS.index(part))) for part in (TRAIN, TEST))
    x = torch.from_numpy(graph.found.graph.nodes)
    edges, weights = map(torch.from_numpy, Neighbours(graph.edges(both=False), len(graph), SYMMETRIC).listed())
    alone = torch.arange(len(graph)).expand(2, -1)
    for name, ends, values in (("without a graph", alone, torch.ones(len(graph))), ("GCN", edges, weights)):
        network = trained(x, ends, values, y, known)
        with torch.no_grad():
            right = network.scatter(x, ends, values).argmax(dim=1)[asked] == y[asked]
        print(f"{name}: {right.float().mean():.6f} of {len(asked)} test nodes are right")
    save(network, args.out)
    return 0


if __name__ == "__main__":
    cli.run(main)
