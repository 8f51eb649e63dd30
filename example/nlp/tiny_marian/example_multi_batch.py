"""Translate every line of a file."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.translation.task import Translation

CKPT = {part: f"tiny_marian_{part}_dyn.onnx" for part in ("encoder", "decoder")}
LENGTHS = [16, 32, 64]  # tokens of source and translation; the card has a plan for each

if __name__ == "__main__":
    cli.multi(Translation, ckpt=CKPT, data_path="data/sentences.txt", batch_size=16, lengths=LENGTHS)
