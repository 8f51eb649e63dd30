"""Find the depth of one image, or the disparity of a pair."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.dense_regression.task import DenseRegression

if __name__ == "__main__":
    cli.single(DenseRegression, ckpt="psmnet_dyn.onnx", data_path="../planes_stereo/data/samples", batch_size=1)
