"""Classify a node of the digits' graph."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.node_classification.task import NodeClassification

if __name__ == "__main__":
    cli.single(NodeClassification, ckpt="digits_gcn_dyn.onnx", data_path="data/digits_graph.npz")
