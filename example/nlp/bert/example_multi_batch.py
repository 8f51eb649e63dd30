"""Classify several texts with a classifier like BERT."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.text_classification import TextClassification

if __name__ == "__main__":
    cli.multi(TextClassification, ckpt="bert_base_dyn.onnx", data_path="data/sentences.tsv", batch_size=8)
