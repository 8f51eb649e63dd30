"""Classify one recording with AST or CNN10."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.sound_classification.task import SoundClassification

DATA = "../keypad_words/data"

if __name__ == "__main__":
    cli.single(SoundClassification, ckpt="ast_dyn.onnx", data_path=f"{DATA}/seven/vm-delete_nohash_0.wav", topk=3)
