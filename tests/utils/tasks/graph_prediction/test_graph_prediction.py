"""Task ``graph_prediction``: both layouts give one answer, on each target; a bad graph costs itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from constructed_models import NAME, bound, written
from onnx import numpy_helper

from engine import ConfigError, DataError, InputError, ModelError, TensorSpec
from utils.datasets.graphs.files import Graph, GraphFile, read_graphs, save_graphs
from utils.datasets.graphs.molecules import AtomFeatures, Molecule
from utils.pipeline import answers, valid
from utils.tasks.graph_prediction.notes import GraphNotes, packed_limits
from utils.tasks.graph_prediction.task import GraphPrediction
from utils.tasks.model import Model
from utils.tasks.templates.sample_tables import COUPLING

PACKED = """<ir_version: 8, opset_import: ["" : 18]>
packed (float[all_nodes,2] x, int64[2,all_edges] edges, float[all_edges] weights, int64[all_nodes] member,
        float[all_nodes] share, float[graphs] sizes) => (float[graphs,1] harmony)
{
  zero = Constant<value_ints = [0]>()
  one = Constant<value_ints = [1]>()
  two = Constant<value_ints = [2]>()
  first = Constant<value_int = 0>()
  second = Constant<value_int = 1>()
  sources = Gather<axis = 0>(edges, first)
  targets = Gather<axis = 0>(edges, second)
  rows = Gather<axis = 0>(x, sources)
  loud = Unsqueeze(weights, one)
  said = Mul(rows, loud)
  said_shape = Shape(said)
  to_column = Unsqueeze(targets, one)
  to = Expand(to_column, said_shape)
  quiet = Sub(x, x)
  heard = ScatterElements<axis = 0, reduction = "add">(quiet, to, said)
  felt = MatMul(x, coupling)
  pairs = Mul(heard, felt)
  there = Unsqueeze(share, one)
  kept = Mul(pairs, there)
  kept_shape = Shape(kept)
  member_column = Unsqueeze(member, one)
  whose = Expand(member_column, kept_shape)
  graph_count = Shape(sizes)
  total_shape = Concat<axis = 0>(graph_count, two)
  none = ConstantOfShape(total_shape)
  total = ScatterElements<axis = 0, reduction = "add">(none, whose, kept)
  harmony = MatMul(total, half)
}
"""
"""The template's network by a list of edges."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the template's model and data, with the packed model beside them."""
    made = written(GraphPrediction, tmp_path_factory.mktemp("gnn"))
    model = onnx.parser.parse_model(PACKED)
    weights = {"coupling": np.array(COUPLING, np.float32), "half": np.full((2, 1), 0.5, np.float32)}
    model.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in weights.items())
    model.metadata_props.add(key="graph", value=json.dumps({"messages": "sum", "loops": False, "targets": ["harmony"]}))
    onnx.save(model, made / "packed.onnx")
    return made


def run(script: str, folder: Path, ckpt: str, data: Path, *words: str) -> tuple[int, dict[str, Any]]:
    out = folder / "result.json"
    where: dict[str, Any] = {"ckpt": folder / ckpt, "data_path": data, "batch_size": 16, "nodes": [8, 16]}
    where["argv"] = [*words, "--json", str(out)]
    code = (
        valid.main(None, GraphPrediction, **where)
        if script == "valid"
        else answers.main(None, GraphPrediction, script, **where)
    )
    return code, json.loads(out.read_text())


@pytest.mark.parametrize(
    "words", [("--target", "onnx"), ("--target", "sdaa", "--batch_size", "5"), ("--target", "sdaa", "--nodes", "16")]
)
def test_both_layouts_give_equal_results(words: tuple[str, ...], folder: Path) -> None:
    data = folder / "data" / "val.npz"
    found = {ckpt: run("valid", folder, ckpt, data, *words) for ckpt in (f"{NAME}_dyn.onnx", "packed.onnx")}
    for code, result in found.values():
        assert (code, result["metric_name"], result["samples"]) == (0, "rmse", 80)
    dense, packed = (result["metric"] for _, result in found.values())
    assert dense == pytest.approx(packed, rel=1e-6)
    assert 0.05 < dense < 0.15  # the noise on what is right


def test_invalid_graphs_are_skipped(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    held = read_graphs(folder / "data" / "val.npz")
    graphs = [one._replace(look=None) for one in held.graphs]
    nothing = np.zeros((2, 0), np.int64)
    graphs[1] = graphs[1]._replace(edges=nothing, name="lonely")
    chain = np.array([[at, at + 1] for at in range(29)]).T
    graphs[2] = Graph(np.eye(2, dtype=np.float32)[np.zeros(30, int)], chain, None, "long")
    graphs[3] = graphs[3]._replace(edges=graphs[3].edges + 90, name="wrong")
    file = tmp_path / "bad.npz"
    save_graphs(file, GraphFile(graphs, held.targets))
    for ckpt in (f"{NAME}_dyn.onnx", "packed.onnx"):
        code, result = run("valid", folder, ckpt, file, "--target", "sdaa")
        said = capsys.readouterr().err
        assert (code, result["samples"]) == (1, 77)
        assert "lonely: has no edges" in said
        assert "--no_edges answer" in said
        assert "long: has 30 nodes, " in said
        assert "wrong: has an edge at node" in said
        assert "3 samples could not be run" in said
    code, result = run("valid", folder, "packed.onnx", file, "--target", "onnx", "--no_edges", "answer")
    assert (code, result["samples"]) == (1, 78)


def test_saved_answers_and_drawings(folder: Path, tmp_path: Path) -> None:
    data, table = folder / "data" / "val.npz", tmp_path / "answers.csv"
    assert run("valid", folder, f"{NAME}_dyn.onnx", data, "--save_predictions", str(table))[0] == 0
    lines = table.read_text().splitlines()
    assert (lines[0], len(lines)) == ("name,harmony", 81)
    assert lines[1].startswith("ring 0,")
    code, result = run(
        "multi", folder, "packed.onnx", folder / "data" / "graphs.npz", "--save", str(tmp_path / "drawn")
    )
    assert code == 0
    assert len(list((tmp_path / "drawn").glob("*.png"))) == len(result["answers"]) == 8


def model_of(notes: object = None, names: tuple[str, ...] = ("x", "adjacency", "mask"), outputs: int = 2) -> Model:
    shapes = {"x": (None, None, 22), "adjacency": (None, None, None), "mask": (None, None)}
    inputs = tuple(TensorSpec(name, np.dtype("float32"), shapes.get(name, (None,)), 0) for name in names)
    made = TensorSpec("y", np.dtype("float32"), (None, outputs), 0)
    return Model(Path("m.onnx"), inputs, (made,), metadata={} if notes is None else {"graph": json.dumps(notes)})


@pytest.mark.parametrize(
    ("notes", "said"),
    [
        ([], "not a JSON object"),
        ({"messages": "loud"}, "messages 'loud'"),
        ({"loops": 1}, "loops 1"),
        ({"kind": "ranking"}, "kind 'ranking'"),
        ({"colour": "red"}, "colour 'red'"),
        ({"atoms": {}}, "atoms must be an object with elements"),
    ],
)
def test_invalid_metadata(notes: object, said: str) -> None:
    with pytest.raises(ModelError, match=said) as caught:
        GraphNotes.of(model_of(notes))
    assert "\n" not in str(caught.value)


def test_inputs_of_another_model() -> None:
    with pytest.raises(ModelError, match=r"a, b; .*mask \(dense\)"):
        bound(GraphPrediction, model_of(names=("a", "b"))).prepare([])


def test_the_kinds_of_answers() -> None:
    logits = np.array([[0.0, 1.0], [-800, 800]], np.float32)
    plain = bound(GraphPrediction, model_of())
    assert plain.kind == "regression"
    np.testing.assert_array_equal(plain.decode(logits, None), logits)
    yes = bound(GraphPrediction, model_of({"kind": "binary"}))
    np.testing.assert_allclose(yes.decode(logits, None), [[0.5, 0.731059], [0, 1]], atol=1e-6)
    chosen = bound(GraphPrediction, model_of(), kind="classes")
    classes = chosen.decode(logits, None)
    np.testing.assert_allclose(np.sum(classes, axis=1), 1)
    data = plain.load({"data": _file_of_one()})
    assert yes.metric(data).name == "roc_auc"
    with pytest.raises(ConfigError, match=r"--metric rmse .*accuracy, roc_auc"):
        bound(GraphPrediction, model_of(), metric="rmse", kind="classes").metric(data)
    with pytest.raises(InputError, match="two classes or more"):
        chosen.decode(logits[:, :1], None)
    shown = chosen.show(Molecule("CC", False, "ethane"), classes[0])
    assert (shown.text, shown.answer) == ("class 1 0.73, class 0 0.27", {"class 0": 0.2689, "class 1": 0.7311})


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _file_of_one() -> Path:
    file = Path("one.npz")
    one = Graph(np.zeros((2, 22), np.float32), np.array([[0], [1]]), None, "one")
    save_graphs(file, GraphFile([one], np.array([[1.0, 0.0]])))
    return file


def test_molecules_need_stored_atom_features() -> None:
    sample = Molecule("CC", False, "ethane")
    with pytest.raises(ConfigError, match="molecules are not supported"):
        bound(GraphPrediction, model_of()).prepare([sample])
    found = bound(GraphPrediction, model_of({"atoms": AtomFeatures().stored()})).prepare([sample])
    assert [array[0].shape for array in found.arrays] == [(2, 22), (2, 2), (2,)]
    assert found.contexts == [(2, 4)]
    np.testing.assert_allclose(found.arrays[1][0], 0.5)
    short = Graph(np.zeros((2, 3), np.float32), np.array([[0], [1]]), None, "one")
    with pytest.raises(ConfigError, match=r"one .*3 .*m\.onnx .*22"):
        bound(GraphPrediction, model_of()).prepare([short])


def test_data_with_other_features_are_rejected(folder: Path, tmp_path: Path) -> None:
    file, held = tmp_path / "f.npz", read_graphs(folder / "data" / "val.npz")
    save_graphs(file, held._replace(features='{"elements": ["C"]}'))
    model = onnx.load(folder / f"{NAME}_dyn.onnx")
    stored = next(entry for entry in model.metadata_props if entry.key == "graph")
    stored.value = json.dumps({**json.loads(stored.value), "atoms": AtomFeatures().stored()})
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(ConfigError, match=r"features .*m\.onnx; make"):
        run("valid", tmp_path, "m.onnx", file)


def test_edges_with_a_value() -> None:
    notes = {"edge_values": True, "directed": True, "loops": False, "messages": "sum"}
    graph = Graph(np.zeros((2, 22), np.float32), np.array([[0], [1]]), np.array([[3.0, 9]], np.float32), "one")
    found = bound(GraphPrediction, model_of(notes)).prepare([graph])
    assert found.arrays[1][0].tolist() == [[0, 0], [3, 0]]
    with pytest.raises(DataError, match="has no edge weights"):
        bound(GraphPrediction, model_of(notes)).prepare([graph._replace(weights=None)])


def test_sizes_with_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAX_ENGINE_NUMS", "4")
    assert bound(GraphPrediction, None, batch_size=10, nodes=[16, 8]).open_sizes() == {
        "model": {"nodes": (8, 16), "all_nodes": (24, 48), "all_edges": (96, 192), "graphs": (3,)}
    }
    other = bound(GraphPrediction, None, batch_size=1, edges=[50])
    assert other.open_sizes()["model"]["all_edges"] == (50,)
    for flag in ("nodes", "edges"):
        with pytest.raises(ConfigError, match=f"--{flag} 0 "):
            bound(GraphPrediction, None, **{flag: [0]}).check()
    names = ("x", "edges", "weights", "member", "share", "sizes")
    assert packed_limits(model_of(names=names)) == ((), (), ())


def test_smiles_on_the_command_line() -> None:
    assert bound(GraphPrediction, None).inline_samples() is None
    found = bound(GraphPrediction, None, smiles=["CC", "CO"]).inline_samples()
    assert found is not None
    assert found.names == ["CC", "CO"]
