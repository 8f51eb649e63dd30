"""Predict the probability of a click for each row of a table."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.ctr_prediction.task import CtrPrediction

if __name__ == "__main__":
    cli.multi(CtrPrediction, ckpt="deepfm_synthetic_dyn.onnx", data_path="data/rows.csv", batch_size=16)
