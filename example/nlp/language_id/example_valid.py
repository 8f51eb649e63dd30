"""Evaluate language_id on held-out messages: accuracy and timing."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.text_classification import TextClassification

if __name__ == "__main__":
    # the card has a plan for each of these lengths; a batch takes the smallest that holds its texts
    cli.valid(
        TextClassification,
        ckpt="language_id_dyn.onnx",
        data_path="data/val.tsv",
        batch_size=64,
        lengths=[16, 32, 64, 128],
    )
