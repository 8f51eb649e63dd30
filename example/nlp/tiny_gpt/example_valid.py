"""Evaluate the small language model on held-out pages: perplexity and timing."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.text_generation.task import TextGeneration

if __name__ == "__main__":
    cli.valid(
        TextGeneration, ckpt="tiny_gpt_dyn.onnx", data_path="data/heldout.jsonl", batch_size=8, lengths=[64, 128, 256]
    )
