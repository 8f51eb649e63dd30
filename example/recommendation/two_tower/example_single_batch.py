"""Recommend films to one user."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.item_recommendation import ITEM_RECOMMENDATION

HERE = Path(__file__).resolve().parent
DATA = "fetch:ml_100k"

if __name__ == "__main__":
    ckpt = {"query": HERE / "two_tower_query_dyn.onnx", "item": HERE / "two_tower_item_dyn.onnx"}
    cli.single(__doc__, ITEM_RECOMMENDATION, ckpt=ckpt, data_path=DATA, batch_size=1)
