"""Evaluate bge on questions about this project's documentation: nDCG@10 and timing."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.retrieval import RETRIEVAL

HERE = Path(__file__).resolve().parent

if __name__ == "__main__":
    ckpt, data = {"embedder": HERE / "bge_small_en_dyn.onnx"}, HERE.parent / "minilm_retrieval/data"
    cli.valid(__doc__, RETRIEVAL, ckpt=ckpt, data_path=data, batch_size=16)
