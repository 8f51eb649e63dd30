"""Export torchvision's MobileNetV2 to ONNX: a static, a dynamic and a dynamic float16 file."""

import sys
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2]))
from tecoinfer_modelzoo.extra import needed
from utils.pipeline import cli

with needed(__file__):
    from utils.export.scripts.classifier import export_classifier

ARCHS = ("mobilenet_v2",)
main = partial(export_classifier, __doc__, HERE, "mobilenet_v2", archs=ARCHS)

if __name__ == "__main__":
    cli.run(main)
