"""Classes of nodes from graph to metric: forms, sampled neighbours, answers, drawings, what is refused in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support import ROOT

from engine import Array, ConfigError, DataError, InputError, ModelError, TensorSpec
from utils.datasets.graphs.node_graphs import load_nodes
from utils.pipeline import answers
from utils.pipeline.flags.options import options
from utils.pipeline.session import load_data, open_engines
from utils.tasks.model import Model
from utils.tasks.node_classification.input import form_of, how_of, packed
from utils.tasks.node_classification.task import NodeClassification

FOLDER = ROOT / "example" / "gnn" / "digits_gcn"
DATA = FOLDER / "data" / "digits_graph.npz"
DENSE, HALF, SCATTER = (FOLDER / f"digits_gcn{end}_dyn.onnx" for end in ("", "_float16", "_scatter"))
RIGHT = 0.936948


def ran(ckpt: Path, *words: object, count: int = 300, data: Path = DATA) -> tuple[float, Array]:
    """Take the first nodes through the task; return their accuracy and scores."""
    given = [str(word) for word in ("--ckpt", ckpt, "--data_path", data, "--batch_size", 64, *words)]
    task = NodeClassification(options(None, NodeClassification, "valid", given))
    with open_engines(task) as engines:
        whole = load_data(task)
        dataset = whole.select(range(min(count, len(whole))))
        task.state = task.setup(engines, dataset)
        judged, rows = task.metric(dataset), list[Array]()
        for batch in dataset.batches(64):
            prepared = task.prepare(batch.samples)
            outputs = task.infer(engines, task.collate([prepared]), prepared.contexts)
            found = task.decode(outputs, prepared.contexts)
            judged.update(found, batch.targets or (), prepared.contexts)
            rows += found
    return judged.compute(), np.stack(rows)


@pytest.mark.parametrize("ckpt", [DENSE, HALF, SCATTER], ids=["dense", "half", "scatter"])
def test_the_accuracy_on_the_baseline(ckpt: Path) -> None:
    found, _ = ran(ckpt, "--target", "onnx", count=9999)
    assert found == pytest.approx(RIGHT, abs=0.001)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["sdaa", "cpu"])
@pytest.mark.parametrize("ckpt", [DENSE, HALF, SCATTER], ids=["dense", "half", "scatter"])
def test_the_accuracy_on_the_other_targets(ckpt: Path, target: str) -> None:
    found, _ = ran(ckpt, "--target", target, count=9999)
    assert found == pytest.approx(RIGHT, abs=0.002)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["onnx", "sdaa"])
@pytest.mark.filterwarnings("ignore:.*samples depend on one another")
def test_sampled_neighbours_answer_alike_in_both_forms(target: str) -> None:
    words = ("--target", target, "--neighbours", "sampled", "--fanout", 6, 4)
    _, dense = ran(DENSE, *words, count=130)
    _, scatter = ran(SCATTER, *words, count=130)
    np.testing.assert_allclose(dense, scatter, atol=2e-2 if target == "sdaa" else 1e-5)


def small(path: Path, count: int = 30, **other: Any) -> Path:
    """Write a graph of few neighbours with the digits' features."""
    ends = np.arange(count)
    edges = np.concatenate([np.stack([ends, (ends + step) % count]) for step in (1, 7, count - 1)], axis=1)
    x = np.random.default_rng(3).random((count, 64), np.float32)
    given: dict[str, Any] = {"x": x, "edges": edges, "y": ends % 10, **other}
    np.savez(path, **given)
    return path


@pytest.mark.parametrize("ckpt", [DENSE, SCATTER], ids=["dense", "scatter"])
def test_all_neighbours_sampled_are_the_whole_graph(tmp_path: Path, ckpt: Path) -> None:
    data = small(tmp_path / "small.npz")
    _, whole = ran(ckpt, "--target", "onnx", data=data)
    _, sampled = ran(ckpt, "--target", "onnx", "--neighbours", "sampled", "--fanout", 3, 3, data=data)
    np.testing.assert_allclose(sampled, whole, atol=1e-5)


@pytest.mark.parametrize("ckpt", [DENSE, SCATTER], ids=["dense", "scatter"])
def test_nan_in_a_node_fails_it_and_its_neighbours(
    tmp_path: Path, ckpt: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A matrix would spread it to all nodes: those that it does not reach have the answers that they have without."""
    ends = np.arange(30)
    x = np.random.default_rng(3).random((30, 64), np.float32)
    x[4] = np.nan
    data = small(tmp_path / "nan.npz", edges=np.stack([ends[:-1], ends[1:]]), x=x)
    found: dict[str, dict[int, Any]] = {}
    for name, path in (("nan", data), ("whole", small(tmp_path / "whole.npz", edges=np.stack([ends[:-1], ends[1:]])))):
        words = ["--target", "onnx", "--nodes", "0-29", "--json", str(tmp_path / "found.json")]
        code = answers.main(None, NodeClassification, "multi", argv=words, ckpt=ckpt, data_path=path, batch_size=8)
        assert code == (name == "nan")
        rows = json.loads((tmp_path / "found.json").read_text())["answers"]
        found[name] = {row["answer"]["node"]: row["answer"] for row in rows}
    assert set(range(30)) - set(found["nan"]) == {4, 5, 6}  # it is heard one way, two hops far
    assert all(found["whole"][node] == answer for node, answer in found["nan"].items())
    said = capfd.readouterr()
    assert "node 4: NaN or infinity is among its own features" in said.out + said.err
    assert (
        "node 6: NaN or infinity is among the features of a node within its hops, such as number 4"
        in said.out + said.err
    )


def test_nodes_without_a_class_are_not_evaluated(tmp_path: Path) -> None:
    data = small(tmp_path / "some.npz", y=np.where(np.arange(30) < 10, np.arange(30), -1))
    assert len(load_nodes(data, "test").rejected) == 20
    found = load_nodes(data, "test", compared=False)
    assert (len(found), len(found.rejected), found.targets) == (30, 0, None)


@pytest.mark.parametrize(
    ("words", "error", "said"),
    [
        (("--node_limit", 100), ConfigError, r"1797 nodes are more than --node_limit 100, .*use --neighbours sampled"),
        (("--neighbours", "sampled", "--fanout", 3), ConfigError, "--fanout 3 has 1 hops, .* 2"),
        (("--fanout", 0, 3), ConfigError, "--fanout 0 3 must be at least 1"),
        (("--seed", -1), ConfigError, "--seed -1"),
    ],
)
def test_invalid_flags(words: tuple[object, ...], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        ran(DENSE, "--target", "onnx", *words)


def test_invalid_data(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"64 features .* have 5"):
        ran(DENSE, "--target", "onnx", data=small(tmp_path / "wide.npz", x=np.zeros((30, 5), np.float32)))
    with pytest.raises(DataError, match="30 nodes and no edges"):
        ran(DENSE, "--target", "onnx", data=small(tmp_path / "none.npz", edges=np.zeros((2, 0), np.int64)))
    with pytest.raises(ModelError, match="differ at number 0"):
        ran(DENSE, "--target", "onnx", data=small(tmp_path / "c.npz", classes=np.array(list("abcdefghij"))))


def model(*ranks: int, **notes: Any) -> Model:
    """Return a model with inputs of these ranks."""
    specs = tuple(TensorSpec(f"i{i}", np.dtype(np.float32), (None,) * rank) for i, rank in enumerate(ranks))
    return Model(Path("m.onnx"), specs, metadata={"nodes": json.dumps(notes)})


def test_model_form_is_detected_by_its_inputs() -> None:
    assert form_of([(1, 2, 3)] * 2, Path("m.onnx")) == "dense"
    with pytest.raises(ModelError, match="its inputs have 4 dimensions"):
        form_of([(1, 3, 32, 32)], Path("m.onnx"))
    graph = load_nodes(DATA, "test").notes["graph"]
    opt = options(None, NodeClassification, "valid", ["--ckpt", str(DENSE), "--data_path", str(DATA)])
    assert how_of(model(2, 2, 1, adjacency="mean"), graph, opt).adjacency == "mean"
    with pytest.raises(ModelError, match="adjacency 'odd'"):
        how_of(model(2, 2, 1, adjacency="odd"), graph, opt)
    opt.neighbours = "full"
    with pytest.raises(ConfigError, match="takes sampled neighbours only"):
        how_of(model(2, 3, 4, 2, 3), graph, opt)
    with pytest.raises(InputError, match=r"shape \(1, 2, 3\)"):
        NodeClassification(opt).bind(model(2, 2, 1)).decode(np.zeros((1, 2, 3), np.float32), [None])


def test_blocks_of_a_spa() -> None:
    x, edges = np.arange(12.0).reshape(3, 2, 2), np.tile([[0, 1], [1, 0]], (3, 1, 1))
    first, last = packed([x, edges, np.ones((3, 2))], 2)
    assert first[1].tolist() == [[0, 1, 2, 3], [1, 0, 3, 2]]
    assert first[0].tolist() == x[:2].reshape(4, 2).tolist()
    assert last[0].tolist() == [*x[2].tolist(), *x[2].tolist()]  # filled up


def test_an_answer_and_its_drawing(tmp_path: Path) -> None:
    opt = options(None, NodeClassification, "single", ["--ckpt", str(DENSE), "--data_path", str(DATA), "--topk", "2"])
    node = load_nodes(DATA, "test", ["24"]).samples[0]
    known = Model(DENSE, (TensorSpec("x", np.dtype(np.float32), (None, None, 64)),) * 2)
    scores = np.eye(10, dtype=np.float32)[4] * 0.9 + 0.01
    task = NodeClassification(opt).bind(known)
    found = task.show(node, scores)
    assert found.text == "4  0.91   0  0.01   8 neighbours"
    assert found.answer["classes"][0] == {"label": "4", "score": 0.91}
    assert found.save is not None
    with Image.open(found.save(tmp_path)) as image:
        assert image.width >= 500
        assert len(image.getcolors(1 << 20) or ()) > 20
    assert task.format_warnings({"without_neighbours": 2}, 9) == [
        "2 of 9 nodes have no neighbours: they are classified by their own features only"
    ]
