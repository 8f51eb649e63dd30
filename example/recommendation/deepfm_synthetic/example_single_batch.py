"""Say how likely a person is to click on one thing: the first row of a table."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.ctr_prediction import CTR_PREDICTION

HERE = Path(__file__).resolve().parent

if __name__ == "__main__":
    ckpt, data = HERE / "deepfm_synthetic_dyn.onnx", HERE / "data/rows.csv"
    cli.single(__doc__, CTR_PREDICTION, ckpt=ckpt, data_path=data, batch_size=1)
