"""Export torchvision's ViT-B/16, or a relative of it, to ONNX: a static, a dynamic and a dynamic float16 file."""

import sys
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2]))
from tecoinfer_modelzoo.extra import needed
from utils.pipeline import cli

with needed(__file__):
    from utils.export.scripts.classifier import export_classifier

ARCHS = ("vit_b_16", "vit_b_32", "vit_l_16", "vit_l_32", "vit_h_14")
main = partial(export_classifier, __doc__, HERE, "vit_b_16", archs=ARCHS)

if __name__ == "__main__":
    cli.run(main)
