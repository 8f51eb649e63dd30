"""Evaluate language_id on held-out messages: accuracy and timing."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.text_classification import TEXT_CLASSIFICATION

HERE = Path(__file__).resolve().parent

if __name__ == "__main__":
    ckpt, data = HERE / "language_id_dyn.onnx", HERE / "data/val.tsv"
    # the card has a plan for each of these lengths; a batch takes the smallest that holds its texts
    cli.valid(__doc__, TEXT_CLASSIFICATION, ckpt=ckpt, data_path=data, batch_size=64, lengths=[16, 32, 64, 128])
