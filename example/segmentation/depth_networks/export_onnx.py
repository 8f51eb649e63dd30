"""Export a network for depth or disparity by its name to ONNX: a static, a dynamic and a dynamic float16 file."""

import sys
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2]))
from tecoinfer_modelzoo.extra import needed
from utils.pipeline import cli

with needed(__file__):
    from utils.export.scripts.image_network import DEPTH, export_network

main = partial(export_network, __doc__, HERE, DEPTH)

if __name__ == "__main__":
    cli.run(main)
