"""Evaluate the two towers on the film that each user rated last: nDCG@10, hit rate, and a popularity baseline."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.item_recommendation.task import ItemRecommendation

DATA = "fetch:ml_100k"
CKPT = {"query": "two_tower_query_dyn.onnx", "item": "two_tower_item_dyn.onnx"}

if __name__ == "__main__":
    cli.valid(ItemRecommendation, ckpt=CKPT, data_path=DATA, batch_size=64)
