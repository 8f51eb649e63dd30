"""Classify whether a film review is positive."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.text_classification import TextClassification

if __name__ == "__main__":
    cli.single(TextClassification, ckpt="minilm_sentiment_dyn.onnx", data_path="data/test.tsv")
