"""Identify the language of each line of a file, or of a folder's files."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.text_classification import TextClassification

if __name__ == "__main__":
    cli.multi(TextClassification, ckpt="language_id_dyn.onnx", data_path="data/sentences.txt", batch_size=16)
