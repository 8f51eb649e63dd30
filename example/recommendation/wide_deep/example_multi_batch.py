"""Predict the clicks of many lines."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.ctr_prediction.task import CtrPrediction

if __name__ == "__main__":
    cli.multi(CtrPrediction, ckpt="wide_deep_dyn.onnx", data_path="../dlrm/data/clicks.txt", batch_size=64)
