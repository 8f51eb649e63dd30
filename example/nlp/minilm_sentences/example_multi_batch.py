"""Compute the similarity of the sentences of each pair, or the nearest of many sentences."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.sentence_similarity import SentenceSimilarity

if __name__ == "__main__":
    cli.multi(SentenceSimilarity, ckpt="minilm_dyn.onnx", data_path="data/sentence_pairs.tsv", batch_size=8)
