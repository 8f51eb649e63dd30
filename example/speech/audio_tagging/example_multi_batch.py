"""Classify every recording of a folder with AST or CNN10."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.sound_classification.task import SoundClassification

DATA = "../keypad_words/data"

if __name__ == "__main__":
    cli.multi(SoundClassification, ckpt="ast_dyn.onnx", data_path=f"{DATA}/seven", batch_size=32)
