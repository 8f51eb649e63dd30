"""Export torchvision's ConvNeXt-T, or a larger one, to ONNX: a static, a dynamic and a dynamic float16 file."""

import sys
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2]))
from tecoinfer_modelzoo.extra import needed
from utils.pipeline import cli

with needed(__file__):
    from utils.export.scripts.classifier import export_classifier

ARCHS = ("convnext_tiny", "convnext_small", "convnext_base", "convnext_large")
main = partial(export_classifier, __doc__, HERE, "convnext_tiny", archs=ARCHS)

if __name__ == "__main__":
    cli.run(main)
