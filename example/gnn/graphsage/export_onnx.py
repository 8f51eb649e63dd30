"""Export GraphSAGE to ONNX: <arch>.onnx, <arch>_dyn.onnx and, where the form has it, <arch>_float16_dyn.onnx."""

import sys
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2]))
from tecoinfer_modelzoo.extra import needed
from utils.pipeline import cli

with needed(__file__):
    from utils.export.networks.graph_models import FANOUT, GraphSizes
    from utils.export.scripts.graph import export_graph_network

ARCHS = {
    "graphsage_digits": GraphSizes("graphsage", features=64, hidden=64, classes=10),
    "graphsage_reddit": GraphSizes("graphsage", features=602, hidden=256, classes=41),
    "graphsage_arxiv": GraphSizes("graphsage", features=128, hidden=256, classes=40, layers=3, norms=True),
}

if __name__ == "__main__":
    cli.run(partial(export_graph_network, __doc__, HERE, ARCHS, FANOUT))
