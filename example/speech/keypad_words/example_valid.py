"""Evaluate the keypad words' network on held-out clips: accuracy, macro F1 and timing."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.sound_classification.task import SoundClassification

if __name__ == "__main__":
    cli.valid(SoundClassification, ckpt="keypad_words_dyn.onnx", data_path="data", batch_size=32)
