"""Graph networks: equivalent forms, weights with PyTorch Geometric's names, exported files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from engine import ConfigError, EngineSpec, ModelError, open_engine  # noqa: E402
from utils.export.networks.graph_models import KINDS, GraphNetwork, GraphSizes, InForm  # noqa: E402
from utils.export.scripts.graph import ADJACENCY, export_graph, export_graph_network, graph_network  # noqa: E402
from utils.preprocess.graphs.neighbours import Neighbours  # noqa: E402

COUNT = 14


def network(kind: str, **other: Any) -> GraphNetwork:
    torch.manual_seed(1)
    made = GraphNetwork(GraphSizes(kind, **{"features": 6, "hidden": 5, "classes": 3, "heads": 2, **other}))
    for norm in made.bns:
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.5, 2)
    return made.eval()


def graph(kind: str) -> Neighbours:
    pairs = np.unique(np.random.default_rng(2).integers(0, COUNT - 1, (2, 40)), axis=1)  # the last has no neighbour
    return Neighbours(pairs[:, pairs[0] != pairs[1]], COUNT, ADJACENCY[kind])


@pytest.mark.parametrize("other", [{}, {"layers": 3, "norms": True}], ids=["two", "three_with_norms"])
@pytest.mark.parametrize("kind", KINDS)
def test_dense_and_scatter_compute_the_same(kind: str, other: dict[str, Any]) -> None:
    made, around = network(kind, **other), graph(kind)
    x = torch.randn(COUNT, 6)
    edges, weights = map(torch.from_numpy, around.listed())
    padded = torch.cat([x, torch.zeros(3, 6)])
    extra = torch.zeros(2, 4, dtype=torch.int64)  # padding edges of weight 0
    with torch.no_grad():
        dense = made.dense(padded[None], torch.from_numpy(around.matrix(COUNT + 3))[None])[0, :COUNT]
        plain = made.scatter(x, edges, weights)
        filled = made.scatter(padded, torch.cat([edges, extra], 1), torch.cat([weights, torch.zeros(4)]))[:COUNT]
    assert torch.isfinite(dense).all()
    torch.testing.assert_close(dense, plain)
    torch.testing.assert_close(filled, plain)


def test_fanout_over_all_neighbours_equals_dense() -> None:
    made, around = network("graphsage"), graph("graphsage")
    x = torch.randn(COUNT, 6)
    width = int(around.degrees.max())
    shares = torch.zeros(COUNT, width)
    places = torch.zeros(COUNT, width, dtype=torch.int64)
    for node in range(COUNT):
        found = around.sources[around.starts[node] : around.starts[node + 1]]
        places[node, : len(found)] = torch.from_numpy(found)
        shares[node, : len(found)] = 1 / max(1, len(found))
    with torch.no_grad():
        fanout = made.fanout(x, x[places], x[places[places]], shares, shares[places])
        plain = made.dense(x[None], torch.from_numpy(around.matrix(COUNT))[None])[0]
    torch.testing.assert_close(fanout, plain)


@pytest.mark.parametrize("kind", KINDS)
def test_weights_with_other_names_load(tmp_path: Path, kind: str) -> None:
    made = network(kind)
    names = {"convs.0": "conv1", "convs.1": "conv2", ".lin.": ".lin_src." if kind == "gat" else ".lin."}
    state = made.state_dict()
    for old, new in names.items():
        state = {name.replace(old, new): value for name, value in state.items()}
    torch.save(state, tmp_path / "w.pth")
    again = graph_network(made.sizes, tmp_path / "w.pth")
    assert all(torch.equal(again.state_dict()[name], value) for name, value in made.state_dict().items())
    with pytest.raises(ModelError):
        graph_network(GraphSizes(kind, 6, 7, 3, heads=2), tmp_path / "w.pth")


def test_invalid_arguments_raise() -> None:
    with pytest.raises(ConfigError, match=r"form fanout.*gcn"):
        InForm(network("gcn"), "fanout")
    with pytest.raises(ConfigError, match="unknown form 'odd'"):
        InForm(network("gcn"), "odd")
    with pytest.raises(ConfigError, match="unknown kind"):
        GraphSizes("odd", 1, 1, 2)
    with pytest.raises(ConfigError, match="--forms float16_dyn: form scatter"):
        export_graph(network("gcn"), Path("x"), "scatter", forms=["float16_dyn"])


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_files_of_both_forms_agree_on_the_card(tmp_path: Path, kind: str) -> None:
    made, around = network(kind), graph(kind)
    x = np.random.default_rng(0).standard_normal((COUNT, 6)).astype(np.float32)
    edges, weights = around.listed()
    with torch.no_grad():
        wanted = made.scatter(torch.from_numpy(x), torch.from_numpy(edges), torch.from_numpy(weights)).numpy()
    for form in ("dense", "scatter"):
        export_graph(made, tmp_path / form, form, forms=["dyn"])
    sizes = {(0, 0): (COUNT,), (1, 1): (len(weights),), (2, 0): (len(weights),)}
    for target, loose in (("onnx", 1e-5), ("sdaa", 1e-2)):
        half = np.float16 if target == "sdaa" else np.float32
        with open_engine(target, EngineSpec(tmp_path / "scatter_dyn.onnx", open_sizes=sizes)) as engine:
            ((found,),) = engine.call_shards([[x.astype(half), edges, weights.astype(half)]])
        np.testing.assert_allclose(found, wanted, atol=loose)
        places = {(0, 1): (COUNT,)}
        with open_engine(target, EngineSpec(tmp_path / "dense_dyn.onnx", open_sizes=places)) as engine:
            found = engine([x[None].astype(half), around.matrix(COUNT)[None].astype(half)])
        np.testing.assert_allclose(np.asarray(found)[0], wanted, atol=loose)


@pytest.mark.slow
def test_script_writes_the_requested_forms(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    archs = {"sage": GraphSizes("graphsage", 6, 5, 3)}
    (tmp_path / "names.txt").write_text("a\nb\nc\n", encoding="utf-8")
    line = ["--out", str(tmp_path), "--labels", str(tmp_path / "names.txt")]
    assert export_graph_network(None, tmp_path, archs, "fanout", argv=line) == 0
    assert "random weights" in capsys.readouterr().out
    assert sorted(path.name for path in tmp_path.glob("*.onnx")) == [
        "sage.onnx",
        "sage_dyn.onnx",
        "sage_float16_dyn.onnx",
    ]
    (tmp_path / "names.txt").write_text("a\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="1 names for 3 classes"):
        export_graph_network(None, tmp_path, archs, "fanout", argv=line)
