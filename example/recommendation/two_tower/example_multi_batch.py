"""Recommend films to some users."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.item_recommendation.task import ItemRecommendation

CKPT = {"query": "two_tower_query_dyn.onnx", "item": "two_tower_item_dyn.onnx"}
USERS = ["1", "13", "201", "405", "655"]

if __name__ == "__main__":
    cli.multi(ItemRecommendation, ckpt=CKPT, data_path="fetch:ml_100k", batch_size=16, users=USERS)
