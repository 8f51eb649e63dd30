"""Evaluate DLRM on lines of Criteo's layout: area under the curve and timing."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.ctr_prediction.task import CtrPrediction

if __name__ == "__main__":
    cli.valid(CtrPrediction, ckpt="dlrm_dyn.onnx", data_path="../dlrm/data/clicks.txt", batch_size=64)
