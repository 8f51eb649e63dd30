"""Export GAT to ONNX: <arch>.onnx, <arch>_dyn.onnx and, where the form has it, <arch>_float16_dyn.onnx."""

import sys
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2]))
from tecoinfer_modelzoo.extra import needed
from utils.pipeline import cli

with needed(__file__):
    from utils.export.networks.graph_models import SCATTER, GraphSizes
    from utils.export.scripts.graph import export_graph_network

ARCHS = {
    "gat_digits": GraphSizes("gat", features=64, hidden=8, classes=10, heads=8),
    "gat_cora": GraphSizes("gat", features=1433, hidden=8, classes=7, heads=8),
    "gat_citeseer": GraphSizes("gat", features=3703, hidden=8, classes=6, heads=8),
}

if __name__ == "__main__":
    cli.run(partial(export_graph_network, __doc__, HERE, ARCHS, SCATTER))
