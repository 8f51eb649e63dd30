"""Continue one prompt."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.text_generation.task import TextGeneration

if __name__ == "__main__":
    cli.single(TextGeneration, ckpt="gpt2_small_dyn.onnx", data_path="data/texts.txt")
