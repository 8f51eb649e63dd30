"""Find the passages that answer each of some questions."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.retrieval import Retrieval

if __name__ == "__main__":
    cli.multi(Retrieval, ckpt={"embedder": "minilm_dyn.onnx"}, data_path="data", batch_size=8)
