"""Evaluate the PyTorch network that the ONNX files were exported from: the metric of the source framework."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2]))

from example_valid import CKPT, DATA, LENGTHS

from tecoinfer_modelzoo.extra import needed
from utils.pipeline import cli
from utils.tasks.token_classification.task import TokenClassification

with needed(__file__):
    from utils.export.networks.bert_heads import Headed
    from utils.export.networks.text_models import tagger_model
    from utils.export.torch_engine import pytorch_target


def network() -> Headed:
    """Return the network with the weights of ``small_bert_ner``."""
    return tagger_model(HERE / "small_bert_ner").module


if __name__ == "__main__":
    target = pytorch_target(network)
    cli.valid(TokenClassification, ckpt=CKPT, data_path=DATA, batch_size=32, lengths=LENGTHS, target=target)
