"""Evaluate language_id on held-out messages: accuracy and timing."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.text_classification import TextClassification

LENGTHS = [16, 32, 64, 128]  # tokens; a batch takes the smallest length that holds its texts

if __name__ == "__main__":
    cli.valid(TextClassification, ckpt="language_id_dyn.onnx", data_path="data/val.tsv", batch_size=64, lengths=LENGTHS)
