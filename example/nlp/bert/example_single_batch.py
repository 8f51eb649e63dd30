"""Say which class a classifier of texts like BERT sees in a text."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.text_classification import TEXT_CLASSIFICATION

HERE = Path(__file__).resolve().parent

if __name__ == "__main__":
    ckpt, data = HERE / "bert_base_dyn.onnx", HERE / "data/sentences.tsv"
    cli.single(__doc__, TEXT_CLASSIFICATION, ckpt=ckpt, data_path=data, batch_size=1)
