"""Predict the solubility of every molecule of a file."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.graph_prediction.task import GraphPrediction

if __name__ == "__main__":
    cli.multi(GraphPrediction, ckpt="solubility_gcn_dyn.onnx", data_path="data/test.sdf", batch_size=64)
