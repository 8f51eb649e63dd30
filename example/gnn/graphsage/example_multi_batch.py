"""Classify some nodes of a graph with GraphSAGE."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.node_classification.task import NodeClassification

GRAPH = "../digits_gcn/data/digits_graph.npz"

if __name__ == "__main__":
    cli.multi(NodeClassification, ckpt="graphsage_digits_dyn.onnx", data_path=GRAPH, batch_size=64, nodes=["20-39"])
