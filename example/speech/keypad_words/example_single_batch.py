"""Classify one clip."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.sound_classification.task import SoundClassification

if __name__ == "__main__":
    cli.single(SoundClassification, ckpt="keypad_words_dyn.onnx", data_path="data/seven/vm-delete_nohash_0.wav")
