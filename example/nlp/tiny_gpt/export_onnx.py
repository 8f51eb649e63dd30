"""Export the small language model to ONNX: tiny_gpt.onnx, tiny_gpt_dyn.onnx and tiny_gpt_float16_dyn.onnx."""

import sys
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2]))
from tecoinfer_modelzoo.extra import needed
from utils.pipeline import cli

with needed(__file__):
    from utils.export.scripts.gpt import export_gpt

SOURCE = "trained by train.py on the language reference and documentation strings of Python 3.11.7 (PSF licence)"

if __name__ == "__main__":
    cli.run(partial(export_gpt, __doc__, HERE, str(HERE), begins=True, source=SOURCE))
