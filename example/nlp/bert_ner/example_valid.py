"""Evaluate the entities of tagged sentences."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.token_classification.task import TokenClassification

CKPT, DATA, LENGTHS = "small_bert_ner_dyn.onnx", "data/val.conll", [16, 32, 64, 128]

if __name__ == "__main__":
    cli.valid(TokenClassification, ckpt=CKPT, data_path=DATA, batch_size=32, lengths=LENGTHS)
