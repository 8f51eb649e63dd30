"""Evaluate answers to questions on texts."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.question_answering import QUESTION_ANSWERING

HERE = Path(__file__).resolve().parent

if __name__ == "__main__":
    ckpt, data = HERE / "small_bert_qa_dyn.onnx", HERE / "data/stories.json"
    cli.valid(__doc__, QUESTION_ANSWERING, ckpt=ckpt, data_path=data, batch_size=16, lengths=[64, 96, 128])
