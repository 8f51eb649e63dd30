"""Classify a node of a graph with GCN."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.node_classification.task import NodeClassification

if __name__ == "__main__":
    cli.single(
        NodeClassification, ckpt="gcn_digits_dyn.onnx", data_path="../digits_gcn/data/digits_graph.npz", batch_size=1
    )
