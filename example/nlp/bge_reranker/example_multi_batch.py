"""Order passages for each of some questions with a bge reranker."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.reranking import RERANKING

HERE = Path(__file__).resolve().parent

if __name__ == "__main__":
    ckpt, data = HERE / "bge_reranker_base_dyn.onnx", HERE.parent / "minilm_retrieval/data"
    cli.multi(__doc__, RERANKING, ckpt=ckpt, data_path=data, batch_size=16, depth=20)
