"""Find the passages that answer one question."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.retrieval import Retrieval

if __name__ == "__main__":
    cli.single(Retrieval, ckpt={"embedder": "minilm_dyn.onnx"}, data_path="data")
