"""Evaluate the sentiment model on film snippets that are not in the training data."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.text_classification import TextClassification

if __name__ == "__main__":
    cli.valid(
        TextClassification, ckpt="minilm_sentiment_dyn.onnx", data_path="data/test.tsv", batch_size=32, neutral=1.0
    )
