"""Evaluate the PyTorch network that the ONNX files were exported from: the metric of the source framework."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2]))

from example_valid import CKPT, DATA

from tecoinfer_modelzoo.extra import needed
from utils.pipeline import cli
from utils.tasks.question_answering import QuestionAnswering

with needed(__file__):
    from utils.export.networks.bert_heads import Spanned
    from utils.export.networks.text_models import encoder_model
    from utils.export.torch_engine import pytorch_target


def network() -> Spanned:
    """Return the network with the weights of ``small_bert_qa``."""
    return encoder_model(HERE / "small_bert_qa", Spanned).module


if __name__ == "__main__":
    cli.valid(
        QuestionAnswering, ckpt=CKPT, data_path=DATA, batch_size=16, lengths=[64, 96, 128],
        target=pytorch_target(network),
    )  # fmt: skip
