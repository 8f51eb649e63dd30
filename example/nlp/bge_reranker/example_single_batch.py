"""Order passages for one question with a bge reranker."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.reranking import Reranking

if __name__ == "__main__":
    cli.single(
        Reranking, ckpt="bge_reranker_base_dyn.onnx", data_path="../minilm_retrieval/data", batch_size=4, depth=20
    )
