"""Export torchvision's SSD to ONNX: <arch>.onnx, <arch>_dyn.onnx and <arch>_float16_dyn.onnx."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2]))
from tecoinfer_modelzoo.extra import needed
from utils.pipeline import cli

with needed(__file__):
    from utils.export.networks.torchvision_detectors import export_torchvision

ARCHS = ("ssd300_vgg16", "ssdlite320_mobilenet_v3_large")


def main() -> int:
    """Write the files and print the largest relative error of each."""
    for line in export_torchvision(__doc__, HERE, "ssdlite320_mobilenet_v3_large", ARCHS):
        print(line)
    return 0


if __name__ == "__main__":
    cli.run(main)
