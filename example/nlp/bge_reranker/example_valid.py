"""Evaluate a bge reranker on questions about this project's documentation: nDCG@10 and timing."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.reranking import Reranking

if __name__ == "__main__":
    cli.valid(
        Reranking, ckpt="bge_reranker_base_dyn.onnx", data_path="../minilm_retrieval/data", batch_size=16, depth=20
    )
