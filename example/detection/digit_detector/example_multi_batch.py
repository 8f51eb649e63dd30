"""Find the digits in a folder of scenes, or in one scene many times over."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.detection import DETECTION

HERE = Path(__file__).resolve().parent

if __name__ == "__main__":
    ckpt, data = HERE / "digit_detector_dyn.onnx", HERE / "data/samples"
    cli.multi(__doc__, DETECTION, ckpt=ckpt, data_path=data, batch_size=16)
