"""Export a classifier of texts like BERT to ONNX: <name>.onnx, <name>_dyn.onnx and <name>_float16_dyn.onnx."""

import sys
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2]))
from tecoinfer_modelzoo.extra import needed
from utils.pipeline import cli

with needed(__file__):
    from utils.export.networks.bert_encoder import Sizes
    from utils.export.scripts.text_classifier import export_text_classifier

ARCHS = {
    "bert_base": Sizes("bert", vocabulary=30522, width=768, layers=12, heads=12, inner=3072),
    "bert_large": Sizes("bert", vocabulary=30522, width=1024, layers=24, heads=16, inner=4096),
    "bert_tiny": Sizes("bert", vocabulary=30522, width=128, layers=2, heads=2, inner=512),
}

if __name__ == "__main__":
    cli.run(partial(export_text_classifier, __doc__, HERE, ARCHS, HERE / "data/sentences.tsv"))
