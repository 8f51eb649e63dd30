"""Export torchvision's FCN to ONNX: <arch>.onnx, <arch>_dyn.onnx and <arch>_float16_dyn.onnx."""

import sys
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2]))
from tecoinfer_modelzoo.extra import needed
from utils.pipeline import cli

with needed(__file__):
    from utils.export.scripts.segmenter import export_segmenter

ARCHS = ("fcn_resnet50", "fcn_resnet101")

if __name__ == "__main__":
    cli.run(partial(export_segmenter, __doc__, HERE, ARCHS))
