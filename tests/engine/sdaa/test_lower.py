from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from support import ROOT, SaveOnnx

from engine import EngineSpec, engine_class, open_engine
from engine.onnx import load_model
from engine.passes import PassOptions
from engine.sdaa import lowered, plan
from engine.sdaa.lower import MADE_OF, Lowered
from engine.sdaa.saved import sources
from toolkit.graph.trace import traced
from toolkit.profile.card import prepare

OTHERS = {
    "engine.backends.ort": "runs what was made",
    "engine.base": "checks calls",
    "engine.host.cores": "counts what computes",
    "engine.foreign": "checks what engines outside the zoo return",
    "engine.random_arrays": "draws what a pass is tried on",
    "engine.sdaa.card": "prices what was made, at the moment it is opened",
    "engine.sdaa.tables": "refuses what does not fit, before anything is made",
    "engine.sdaa.status": "where the card's state is shown",
    "engine.spec": "what the caller asks for, which is compared itself",
    "engine.timeline": "times",
}
"""Direct and indirect imports of lowering that do not affect its result."""

LINE = "g (float[N,4] x) => (float[N,4] y) { a = Add(x, x) y = Softmax(a) }"


def file_of(module: str) -> Path:
    path = ROOT.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def imported(module: str) -> Iterator[str]:
    """Yield the engine's modules that a module imports, in functions too, and not for the type checker only."""
    found = list(ast.walk(ast.parse(file_of(module).read_text(encoding="utf-8"))))
    checks = [node for node in found if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    typed = {id(inner) for check in checks for line in check.body for inner in ast.walk(line)}
    for node in found:
        if isinstance(node, ast.ImportFrom) and id(node) not in typed and (node.module or "").startswith("engine"):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name for name in (str(node.module), *names) if file_of(name).is_file())


def test_a_saved_engine_is_one_of_every_module_that_lowering_uses() -> None:
    seen: set[str] = set()
    todo = ["engine.sdaa.lower", "engine.sdaa.plan"]
    while todo:
        module = todo.pop()
        if module not in seen:
            seen.add(module)
            todo.extend(imported(module))
    assert {"engine.onnx.functions", "engine.batching.find", "engine.sdaa.kernels"} <= seen
    hashed = set(sources())
    left = {module for module in seen if file_of(module) not in hashed}
    assert left == OTHERS.keys(), "name it in engine.sdaa.lower.MADE_OF, or say here why it decides nothing"


def test_declared_sources_exist() -> None:
    assert all(file_of(name).is_file() for name in MADE_OF)
    assert all(file.is_file() for file in sources())
    assert len(set(sources())) == len(sources())
    assert {ROOT / "engine/passes/rules/attention.py", ROOT / "engine/sdaa/lower.py"} <= set(sources())


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("text", ["", "need_convert = False", "skip_ops = ['Add']"])
def test_engine_profile_and_compare_lower_equally(dtype: str, text: str, save_onnx: SaveOnnx) -> None:
    path = save_onnx(LINE)
    pass_path = path.parent / "p.py"
    pass_path.write_text(text)
    spec = EngineSpec(path, batch_size=3, dtype=dtype, pass_path=pass_path, divided=False)
    options = PassOptions.load(pass_path)
    made = lowered(load_model(path), options, {"x": (3, 4)}, float16=dtype == "float16", batch=3)
    profiled = prepare(spec)
    assert (made.model, made.stored, made.shaped) == (profiled.model, profiled.stored, profiled.shaped)
    assert (made.half, made.batch, dict(made.inputs)) == (profiled.half, profiled.batch, dict(profiled.inputs))
    assert made.half == (dtype == "float16" and options.need_convert)
    with engine_class("sdaa")(spec) as engine:
        assert made.work.kernels == engine.cost.kernels  # type: ignore[attr-defined]
        [want] = engine.infer([np.ones((3, 4), engine.input_dtype)])
    with traced(path, "sdaa", dtype=dtype, pass_path=pass_path, batch=3) as shown:
        assert shown.model is not None
        nodes = [(node.op_type, *node.output) for node in shown.model.graph.node]
        got = shown.run([np.ones((3, 4), np.float32)])["y"]
    assert nodes == [(node.op_type, *node.output) for node in made.stored.graph.node]
    np.testing.assert_array_equal(got.astype(want.dtype), want)


def test_a_model_is_unchanged(save_onnx: SaveOnnx) -> None:
    model = load_model(save_onnx(LINE))
    before = model.SerializeToString()
    made = lowered(model, PassOptions(), {"x": (2, 4)}, float16=True, batch=2)
    assert made.original is model
    assert made.stored is made.stored
    assert made.stored.graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT16
    assert made.model.graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT
    assert model.SerializeToString() == before


@pytest.mark.parametrize(("batch", "times"), [(4, 1), (8, 1), (16, 2)])
def test_a_pass_checked_at_the_size_of_the_plan_is_not_run_again(
    batch: int, times: int, save_onnx: SaveOnnx, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A SPA gets 1, 2 and 4 samples; a pass is tried on two at most."""
    seen = []

    def counted(*args: Any, **options: Any) -> Lowered:
        seen.append(options["batch"])
        return lowered(*args, **options)

    monkeypatch.setattr(plan, "lowered", counted)
    x = np.arange(4 * batch, dtype=np.float32).reshape(batch, 4) / 64
    with open_engine("sdaa", EngineSpec(save_onnx(LINE), batch_size=batch, dtype="float32")) as engine:
        want = np.exp(2 * x) / np.exp(2 * x).sum(1, keepdims=True)
        np.testing.assert_allclose(np.asarray(engine([x])), want, rtol=1e-5)
    assert len(seen) == times
    assert seen[-1] == batch // 4
