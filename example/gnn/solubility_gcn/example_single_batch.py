"""Predict the solubility of one molecule: caffeine, or --smiles."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.graph_prediction.task import GraphPrediction

CAFFEINE = "Cn1cnc2c1c(=O)n(C)c(=O)n2C"

if __name__ == "__main__":
    cli.single(GraphPrediction, ckpt="solubility_gcn_dyn.onnx", data_path="data/test.sdf", smiles=[CAFFEINE])
