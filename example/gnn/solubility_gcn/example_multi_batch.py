"""Tell the solubility of every molecule of a file."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.graph_prediction import GRAPH_PREDICTION

HERE = Path(__file__).resolve().parent

if __name__ == "__main__":
    ckpt, data = HERE / "solubility_gcn_dyn.onnx", HERE / "data/test.sdf"
    cli.multi(__doc__, GRAPH_PREDICTION, ckpt=ckpt, data_path=data, batch_size=64)
