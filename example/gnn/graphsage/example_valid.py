"""Evaluate GraphSAGE on the nodes of a graph: node accuracy and timing."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.node_classification import NODE_CLASSIFICATION

HERE = Path(__file__).resolve().parent

if __name__ == "__main__":
    ckpt, data = HERE / "graphsage_digits_dyn.onnx", HERE.parent / "digits_gcn/data/digits_graph.npz"
    cli.valid(__doc__, NODE_CLASSIFICATION, ckpt=ckpt, data_path=data, batch_size=256)
