"""Say which digit each of some nodes of the digits' graph is."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.node_classification import NODE_CLASSIFICATION

HERE = Path(__file__).resolve().parent

if __name__ == "__main__":
    ckpt, data = HERE / "digits_gcn_dyn.onnx", HERE / "data/digits_graph.npz"
    cli.multi(__doc__, NODE_CLASSIFICATION, ckpt=ckpt, data_path=data, batch_size=64, nodes=["20-39"])
