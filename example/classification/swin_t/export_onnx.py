"""Export torchvision's Swin-T, or a relative of it, to ONNX: a static, a dynamic and a dynamic float16 file."""

import sys
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2]))
from tecoinfer_modelzoo.extra import needed
from utils.pipeline import cli

with needed(__file__):
    from utils.export.scripts.classifier import export_classifier

ARCHS = ("swin_t", "swin_s", "swin_b", "swin_v2_t", "swin_v2_s", "swin_v2_b")
main = partial(export_classifier, __doc__, HERE, "swin_t", archs=ARCHS)

if __name__ == "__main__":
    cli.run(main)
