"""Models beyond the limits are rejected with a one-line error, on every target, before any computation."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper
from support import SaveOnnx

from engine import EngineSpec, ModelError, TecoInferError, open_engine
from engine.onnx import infer_shapes, load_model
from engine.onnx.bounds import MOST_BODIES, MOST_NODES, check_bounds, depth_of_bodies
from tests.fuzz import graphs

TARGETS = (("onnx", None), ("cpu", None), ("sdaa", "float32"), ("sdaa", "float16"))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from engine.backends import trial

    monkeypatch.setenv("TECO_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(trial, "TRIAL_SECONDS", 0.01)


def written(made: ModelProto | bytes, folder: Path) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(made if isinstance(made, bytes) else made.SerializeToString())
    return path


def rejection(path: Path, target: str, dtype: str | None) -> str:
    """Return the one-line error of a model, which contains the file name."""
    with pytest.raises(TecoInferError) as error:
        open_engine(target, EngineSpec(ckpt=path, batch_size=2, dtype=dtype)).release()
    assert "\n" not in str(error.value)
    assert path.name in str(error.value)
    assert "nobody foresaw" not in str(error.value)
    return str(error.value)


def gemm(change: Callable[[ModelProto], object]) -> ModelProto:
    model = graphs.SEEDS["gemm"]()
    change(model)
    return model


def weight(model: ModelProto) -> TensorProto:
    return model.graph.initializer[0]


def dims(*sizes: int) -> Callable[[ModelProto], object]:
    def change(model: ModelProto) -> None:
        del weight(model).dims[:]
        weight(model).dims.extend(sizes)

    return change


def input_dims(count: int) -> Callable[[ModelProto], object]:
    return lambda model: [model.graph.input[0].type.tensor_type.shape.dim.add(dim_value=1) for _ in range(count)]


BROKEN: dict[str, Callable[[], ModelProto | bytes]] = {
    "input is not UTF-8": lambda: gemm(lambda m: None).SerializeToString().replace(b"\x01x", b"\x01\xff"),
    "operator is not UTF-8": lambda: gemm(lambda m: None).SerializeToString().replace(b"Relu", b"R\xff\xfeu"),
    "function is not UTF-8": lambda: graphs.SEEDS["clash"]().SerializeToString().replace(b"Add", b"A\xff\xfe"),
    "65 dimensions": lambda: gemm(dims(*[1] * 64, 8)),
    "huge dimensions": lambda: gemm(dims(2**62, 2**62)),
    "dimensions that overflow": lambda: gemm(dims(2**32, 2**32)),
    "huge and empty": lambda: gemm(dims(0, 2**62, 2**62)),
    "weight of unknown type": lambda: gemm(lambda m: setattr(weight(m), "data_type", 999)),
    "negative type": lambda: gemm(lambda m: setattr(weight(m), "data_type", -1)),
    "input of unknown type": lambda: gemm(
        lambda m: setattr(m.graph.input[0].type.tensor_type, "elem_type", 999)  # KeyError
    ),
    "value without type": lambda: gemm(lambda m: m.graph.value_info.add(name="t").type.tensor_type.shape.SetInParent()),
    "input of 72 dimensions": lambda: gemm(input_dims(70)),
    "node without inputs": lambda: gemm(lambda m: m.graph.node[2].ClearField("input")),
    "node without outputs": lambda: gemm(lambda m: m.graph.node[2].ClearField("output")),
    "function that calls itself": lambda: graphs.functions(1, 1, recursive=True),
    "functions that call one another": lambda: graphs.functions(3, 2, recursive=True),
    "functions 100 deep": lambda: graphs.functions(100, 1),
    "functions that double 28 times": lambda: graphs.functions(28, 2),
    "function of a domain that is not imported": lambda: _without_own(graphs.SEEDS["clash"]()),
    "sequence of nothing": lambda: gemm(lambda m: m.graph.value_info.add(name="t").type.sequence_type.SetInParent()),
    "float16 times float32": lambda: gemm(
        lambda m: [setattr(info.type.tensor_type, "elem_type", 10) for info in (m.graph.input[0], m.graph.output[0])]
    ),
}


def _without_own(model: ModelProto) -> ModelProto:
    del model.opset_import[1]
    return model


@pytest.mark.parametrize("name", BROKEN)
def test_every_target_rejects_an_invalid_model_in_one_line(name: str, tmp_path: Path) -> None:
    path = written(BROKEN[name](), tmp_path)
    for target, dtype in TARGETS:
        rejection(path, target, dtype)


def test_messages() -> None:
    def message(model: ModelProto) -> str:
        with pytest.raises(ModelError) as error:
            check_bounds(model, Path("m.onnx"))
        return str(error.value)

    assert re.match(rf"m\.onnx: .* {2**28} nodes.* {MOST_NODES};", message(graphs.functions(28, 2)))
    assert message(graphs.functions(2, 1, True)).startswith("m.onnx: function 'own.f1' calls itself")
    assert "more than 64 deep" in message(graphs.functions(900, 1))
    assert message(gemm(dims(*[1] * 70))).startswith("m.onnx: weight 'w' has 70 dimensions, the limit is 64")
    assert "type 999" in message(gemm(lambda m: setattr(weight(m), "data_type", 999)))
    assert f"more than {MOST_BODIES} deep" in message(graphs.nested(MOST_BODIES + 1))


@pytest.mark.parametrize("seed", graphs.SEEDS)
def test_valid_models_are_within_the_limits(seed: str) -> None:
    check_bounds(graphs.SEEDS[seed]())
    check_bounds(graphs.nested(MOST_BODIES))
    check_bounds(graphs.functions(13, 2))


EQUATIONS = {
    **dict.fromkeys(("ij,jk->ik", "i j, j k", "...ij,...jk->...ik", "", "ii", "->", "Ab...->A", "ij->ji"), True),
    **dict.fromkeys(("`m\x89a", "m1", "a.b", "i....", "i-j", "i\nj", "i->j->k", "ij->`", "\u00e9"), False),
}
"""Einsum equations; onnx's inference (1.23) does not terminate for "`m" and "a.b"."""


@pytest.mark.parametrize("equation", EQUATIONS)
def test_the_equation_of_an_einsum(equation: str) -> None:
    model = graphs.SEEDS["einsum"]()
    model.graph.node[0].attribute[0].s = equation.encode("latin-1")
    if EQUATIONS[equation]:
        check_bounds(model)
    else:
        with pytest.raises(ModelError, match=r"^m.onnx: the equation .* Einsum 'y'"):
            check_bounds(model, Path("m.onnx"))


def test_axes_that_crash_the_inference() -> None:
    """For axis 2^63 - 1 of LayerNormalization, onnx's inference (1.23) ends with SIGSEGV."""
    model = graphs.SEEDS["norm"]()
    norm = next(node for node in model.graph.node if node.op_type == "LayerNormalization")
    for axis, taken in ((-1, True), (64, True), (65, False), (2**63 - 1, False), (-(2**63), False)):
        del norm.attribute[:]
        norm.attribute.append(onnx.helper.make_attribute("axis", axis))
        if taken:
            check_bounds(model)
        else:
            with pytest.raises(ModelError, match=rf"^m\.onnx: axis {axis} .*LayerNormalization"):
                check_bounds(model, Path("m.onnx"))


def test_depth_of_bodies() -> None:
    assert [depth_of_bodies(graphs.nested(depth)) for depth in (0, 1, 5)] == [0, 1, 5]


def test_deep_bodies_run_on_onnx_runtime_only(tmp_path: Path) -> None:
    path = written(graphs.nested(20), tmp_path)  # takes OpenVINO a minute
    with open_engine("cpu", EngineSpec(ckpt=path, batch_size=2)) as engine:
        assert np.array_equal(engine([np.ones((2, 4), np.float32), np.array(True)]), -np.ones((2, 4)))


# ------------------------------------------------------------------------------------------------------ external data


def external(folder: Path, location: str = "w.bin") -> Path:
    model = graphs.SEEDS["gemm"]()
    for tensor in graphs.with_external(model, folder):
        tensor.external_data[0].value = location
    return written(model, folder)


def answer(path: Path, target: str, dtype: str | None) -> np.ndarray:
    with open_engine(target, EngineSpec(ckpt=path, batch_size=2, dtype=dtype)) as engine:
        found = engine(np.ones((2, 4), engine.input_dtype))
    assert isinstance(found, np.ndarray)
    return found


@pytest.mark.parametrize("how", ["hard link", "link"])
def test_every_target_accepts_a_linked_file(how: str, tmp_path: Path) -> None:
    path = external(tmp_path)
    (tmp_path / "w.bin").rename(tmp_path / "other.bin")
    if how == "link":
        (tmp_path / "w.bin").symlink_to("other.bin")
    else:
        os.link(tmp_path / "other.bin", tmp_path / "w.bin")
    answers = [answer(path, target, dtype) for target, dtype in TARGETS]
    assert all(np.allclose(found, answers[0], rtol=1e-2) for found in answers)


@pytest.mark.parametrize("what", ["pipe", "device", "link outside", "folder", "long", "absolute", "nul"])
def test_invalid_external_files(what: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    place = folder / "w.bin"
    locations = {"long": "a" * 5000, "absolute": str(place), "nul": "w\0.bin"}
    path = external(folder, locations.get(what, "w.bin"))
    if what == "link outside":
        place.rename(tmp_path / "w.bin")
        place.symlink_to("../w.bin")
    elif what not in locations:
        place.unlink()
        makers: dict[str, Callable[[], object]] = {
            "pipe": lambda: os.mkfifo(place),
            "device": lambda: place.symlink_to("/dev/zero"),
            "folder": place.mkdir,
        }
        makers[what]()
    for target, dtype in TARGETS:
        rejection(path, target, dtype)


@pytest.mark.parametrize(
    "entry", [("offset", "-4"), ("offset", "x"), ("length", ""), ("length", str(2**70)), ("a", "b")]
)
def test_invalid_external_entries(entry: tuple[str, str], tmp_path: Path) -> None:
    model = graphs.SEEDS["gemm"]()
    tensor = graphs.with_external(model, tmp_path)[0]
    tensor.external_data.add(key=entry[0], value=entry[1])
    path = written(model, tmp_path)
    for target, dtype in TARGETS:
        rejection(path, target, dtype)
    with pytest.raises(ModelError, match="external"):
        load_model(path)


def test_hashing_does_not_block_on_a_pipe(tmp_path: Path) -> None:
    from engine.onnx import file_hash

    path = external(tmp_path)
    (tmp_path / "w.bin").unlink()
    os.mkfifo(tmp_path / "w.bin")
    with pytest.raises(ModelError, match="a pipe or a device"):
        file_hash(path)


# ------------------------------------------------------------------------------------------------------ the file itself


@pytest.mark.parametrize("what", ["pipe", "device", "beyond PATH_MAX", "long name", "not UTF-8"])
def test_invalid_model_paths(what: str, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    if what == "pipe":
        os.mkfifo(path)
    elif what == "device":
        path.symlink_to("/dev/zero")
    elif what == "beyond PATH_MAX":
        path = tmp_path / ("a/" * 2500) / "model.onnx"
    elif what == "long name":
        path = tmp_path / ("a" * 300 + ".onnx")
    else:
        path = tmp_path / "model.onnx\udcff"
    for target in ("onnx", "cpu", "sdaa", "null"):
        with pytest.raises(ModelError, match="model file"):
            open_engine(target, EngineSpec(ckpt=path))


def test_a_file_name_that_is_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "m\udcff.onnx"
    path.write_bytes(graphs.SEEDS["gemm"]().SerializeToString())
    assert [answer(path, target, dtype).shape for target, dtype in TARGETS] == [(2, 2)] * len(TARGETS)


def test_models_of_the_repository_are_within_the_limits() -> None:
    for path in graphs.digits(Path(__file__).parents[3]):
        check_bounds(onnx.load(path))


def test_a_negative_size_is_dynamic(save_onnx: SaveOnnx) -> None:
    text = "net (float[N, 4] x) => (float[N, M] y) <int64[1] a = {0}, int64[1] b = {2}, int64[1] c = {1}>"
    model = onnx.load(str(save_onnx(text + " { y = Slice(x, a, b, c) }")))
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = -(2**63)  # crashed with SIGABRT
    assert infer_shapes(model).graph.output[0].name == "y"


def test_a_weight_without_type() -> None:
    one = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy"]
    same = helper.make_node("Identity", ["x"], ["y"])
    graph = helper.make_graph([same], "g", one[:1], one[1:], [TensorProto(name="new", dims=[1])])
    with pytest.raises(ModelError, match=r"weight 'new'.* type"):
        check_bounds(helper.make_model(graph), "model.onnx")
