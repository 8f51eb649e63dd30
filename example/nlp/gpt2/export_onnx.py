"""Export GPT-2 to ONNX, with a key/value cache of planned sizes: <name>.onnx, _dyn.onnx and _float16_dyn.onnx."""

import sys
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2]))
from utils.export.gpt_script import export_gpt
from utils.pipeline import cli

if __name__ == "__main__":
    cli.run(partial(export_gpt, __doc__, HERE, "random"))
