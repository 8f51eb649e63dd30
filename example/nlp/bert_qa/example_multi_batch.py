"""Answer the questions of a file."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.question_answering import QuestionAnswering

CKPT, DATA = "small_bert_qa_dyn.onnx", "data/stories.json"

if __name__ == "__main__":
    cli.multi(QuestionAnswering, ckpt=CKPT, data_path=DATA, batch_size=16, lengths=[64, 96, 128])
