"""Evaluate translations of held-out prompts: BLEU, chrF and timing."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.translation.task import Translation

CKPT = {part: f"tiny_marian_{part}_dyn.onnx" for part in ("encoder", "decoder")}
DATA, LENGTHS = "data/val.tsv", [16, 32, 64]  # tokens that the card has plans for

if __name__ == "__main__":
    cli.valid(Translation, ckpt=CKPT, data_path=DATA, batch_size=16, lengths=LENGTHS)
