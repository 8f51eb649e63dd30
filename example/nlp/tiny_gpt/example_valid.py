"""Evaluate the small language model on pages it has not seen: perplexity and timing."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.text_generation import TEXT_GENERATION

HERE = Path(__file__).resolve().parent

if __name__ == "__main__":
    ckpt, data = HERE / "tiny_gpt_dyn.onnx", HERE / "data/heldout.jsonl"
    cli.valid(__doc__, TEXT_GENERATION, ckpt=ckpt, data_path=data, batch_size=8, lengths=[64, 128, 256])
