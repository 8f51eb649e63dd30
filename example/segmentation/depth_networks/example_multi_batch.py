"""Find the depth of every image of a folder, or the disparity of every pair."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.dense_regression.task import DenseRegression

if __name__ == "__main__":
    cli.multi(DenseRegression, ckpt="psmnet_dyn.onnx", data_path="../planes_stereo/data/samples", batch_size=16)
