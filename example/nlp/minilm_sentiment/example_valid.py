"""Evaluate the sentiment model on film snippets that its training never saw."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.text_classification import TEXT_CLASSIFICATION

HERE = Path(__file__).resolve().parent

if __name__ == "__main__":
    ckpt, data = HERE / "minilm_sentiment_dyn.onnx", HERE / "data/test.tsv"
    cli.valid(__doc__, TEXT_CLASSIFICATION, ckpt=ckpt, data_path=data, batch_size=32, neutral=1.0)
