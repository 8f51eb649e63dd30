"""Evaluate DeepFM on held-out synthetic clicks."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.ctr_prediction.task import CtrPrediction

if __name__ == "__main__":
    cli.valid(CtrPrediction, ckpt="deepfm_synthetic_dyn.onnx", data_path="data/val.csv", batch_size=256)
