"""Say which class a classifier of texts like RoBERTa sees in each of some texts."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.text_classification import TEXT_CLASSIFICATION

HERE = Path(__file__).resolve().parent

if __name__ == "__main__":
    ckpt, data = HERE / "roberta_base_dyn.onnx", HERE.parent / "bert/data/sentences.tsv"
    cli.multi(__doc__, TEXT_CLASSIFICATION, ckpt=ckpt, data_path=data, batch_size=8)
