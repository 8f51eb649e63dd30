"""Evaluate AST or CNN10 on recordings with labels: accuracy, macro F1 and timing."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.sound_classification.task import SoundClassification

DATA = "../keypad_words/data"

if __name__ == "__main__":
    cli.valid(SoundClassification, ckpt="ast_dyn.onnx", data_path=DATA, batch_size=32)
