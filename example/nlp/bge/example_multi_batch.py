"""Find the passages that answer each of some questions with bge."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.retrieval import Retrieval

if __name__ == "__main__":
    cli.multi(Retrieval, ckpt={"embedder": "bge_small_en_dyn.onnx"}, data_path="../minilm_retrieval/data", batch_size=8)
