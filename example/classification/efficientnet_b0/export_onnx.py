"""Export torchvision's EfficientNet-B0, or a larger one, to ONNX: a static, a dynamic and a dynamic float16 file."""

import sys
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2]))
from tecoinfer_modelzoo.extra import needed
from utils.pipeline import cli

with needed(__file__):
    from utils.export.scripts.classifier import export_classifier

ARCHS = (
    "efficientnet_b0",
    "efficientnet_b1",
    "efficientnet_b2",
    "efficientnet_b3",
    "efficientnet_b4",
    "efficientnet_b5",
    "efficientnet_b6",
    "efficientnet_b7",
)
main = partial(export_classifier, __doc__, HERE, "efficientnet_b0", archs=ARCHS)

if __name__ == "__main__":
    cli.run(main)
