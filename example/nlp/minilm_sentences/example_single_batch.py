"""Say how alike two sentences are."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.sentence_similarity import SENTENCE_SIMILARITY

HERE = Path(__file__).resolve().parent

if __name__ == "__main__":
    ckpt, data = HERE / "minilm_dyn.onnx", HERE / "data/sentence_pairs.tsv"
    cli.single(__doc__, SENTENCE_SIMILARITY, ckpt=ckpt, data_path=data, batch_size=1)
