"""Predict the probability that a user rates a film with at least four stars."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.ctr_prediction.task import CtrPrediction

if __name__ == "__main__":
    cli.single(CtrPrediction, ckpt="deepfm_ml100k_dyn.onnx", data_path="fetch:ml_100k")
