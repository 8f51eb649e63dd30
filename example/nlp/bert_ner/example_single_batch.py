"""Tag the entities of one sentence: --text, or the first one of a file."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.token_classification.task import TokenClassification

if __name__ == "__main__":
    cli.single(TokenClassification, ckpt="small_bert_ner_dyn.onnx", data_path="data/sentences.txt")
