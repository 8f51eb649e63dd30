"""Evaluate bge on questions about this project's documentation: nDCG@10 and timing."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.retrieval import Retrieval

if __name__ == "__main__":
    cli.valid(
        Retrieval, ckpt={"embedder": "bge_small_en_dyn.onnx"}, data_path="../minilm_retrieval/data", batch_size=16
    )
