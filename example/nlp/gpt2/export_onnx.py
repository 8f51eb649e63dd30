"""Export GPT-2 to ONNX, with a key/value cache of planned sizes: <name>.onnx, _dyn.onnx and _float16_dyn.onnx."""

import sys
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2]))
from tecoinfer_modelzoo.extra import needed
from utils.pipeline import cli

with needed(__file__):
    from utils.export.scripts.gpt import export_gpt


if __name__ == "__main__":
    cli.run(partial(export_gpt, __doc__, HERE, "random"))
