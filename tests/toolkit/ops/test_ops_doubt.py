"""teco ops with conflicting evidence, and verification of rewrites."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto
from support import SaveOnnx

from engine import Array, EngineSpec, ModelError, TargetError, registry
from engine.backends.null import NullEngine
from toolkit.ops import rewrites
from toolkit.ops.judge import CASE, CUSTOM, HOST, Judgement, judge_file
from toolkit.ops.table import Support, Table
from toolkit.ops.trial import trial_of

GELU = """<ir_version: 9, opset_import: ["" : 20]> g (float[2,4] x) => (float[2,4] y) { y = Gelu(x) }"""
ABS = "g (TYPE[2,4] x) => (TYPE[2,4] y) { y = Abs(x) }"
STATED, MISSING = Support("stated", "us"), Support("missing", "us")


def only(path: Path, table: Table, trial: Callable[[ModelProto], str | None] | None = None) -> Judgement:
    (found,) = judge_file(path, table, trial=trial or trial_of("sdaa"))[0]
    return found


def test_unlisted_dtype_is_tried(save_onnx: SaveOnnx) -> None:
    table = Table("sdaa", {"Abs": STATED}, {"float32": STATED}, simulated=True)
    plain = only(save_onnx(ABS.replace("TYPE", "float")), table)
    assert (plain.level, plain.source) == ("stated", "us")
    other = only(save_onnx(ABS.replace("TYPE", "int32")), table)
    assert (other.level, other.source) == ("simulated", "us, but not in int32")
    silent = Table("sdaa", {"Abs": STATED}, {}, simulated=True)
    assert only(save_onnx(ABS.replace("TYPE", "int32")), silent).level == "stated"


def test_failed_trial_overrides_table(save_onnx: SaveOnnx) -> None:
    table = Table("own", {"Abs": STATED}, {})
    found = only(save_onnx(ABS.replace("TYPE", "float")), table, lambda model: "it will not")
    assert (found.level, found.source, found.fix) == ("missing", "it will not", CUSTOM)


def test_optest_is_suggested_for_untried_operators(save_onnx: SaveOnnx) -> None:
    path = save_onnx(ABS.replace("TYPE", "float"))
    assert only(path, Table("sdaa", {"Abs": MISSING}, {})).fix == CASE
    text = save_onnx("g (string[2] x) => (string[2] y) { y = Identity(x) }", "text.onnx")
    assert only(text, Table("sdaa", {"Identity": MISSING}, {})).fix == HOST


def test_rewrites_must_run_on_target(save_onnx: SaveOnnx) -> None:
    path, table = save_onnx(GELU), Table("own", {"Gelu": MISSING}, {})
    assert only(path, table, lambda model: "").rewrite is not None
    assert only(path, table, lambda model: "" if len(model.graph.node) == 1 else "too long").rewrite is None


@pytest.mark.parametrize(
    ("kind", "factor", "offered"),
    [("float", 1.0, True), ("float", 1.001, False), ("float16", 1.002, True), ("float16", 1.1, False)],
)
def test_rewrite_tolerance_by_dtype(kind: str, factor: float, offered: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    cut = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]> {ABS.replace("TYPE", kind)}'.replace("Abs(x)", "Neg(x)")
    )
    made = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 17]> g ({kind}[2,4] x) => ({kind}[2,4] y)
        <float f={{{-factor}}}> {{ c = CastLike(f, x)\n y = Mul(x, c) }}"""
    )
    monkeypatch.setattr(rewrites, "REWRITES", {"by itself": lambda model: made})
    found = rewrites.find_rewrite(cut, lambda model: "")
    assert (found is not None) is offered
    if found is not None:
        assert (found.operators, found.against) == (("CastLike", "Mul"), "ONNX Runtime")
        assert found.error == pytest.approx(factor - 1, abs=1e-3)


def test_rewrite_must_be_valid_for_all_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    cut = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {ABS.replace("TYPE", "float")}')
    fed = iter([np.ones((2, 4), np.float32), -np.ones((2, 4), np.float32)])

    def draw(model: ModelProto, seed: int, batch: int) -> list[Array]:
        return [next(fed)]

    monkeypatch.setattr(rewrites, "draw", draw)
    relu = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[2,4] x) => (float[2,4] y) { y = Relu(x) }'
    )
    monkeypatch.setattr(rewrites, "REWRITES", {"by itself": lambda model: relu})
    assert rewrites.find_rewrite(cut, lambda model: "") is None


def test_primitive_has_no_rewrite() -> None:
    cut = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {ABS.replace("TYPE", "float")}')
    assert rewrites.spelled_out(cut) is None


class Fussy(NullEngine):
    """Target that rejects some models."""

    refuses: Exception | None = None
    seen: Sequence[EngineSpec] = ()

    def __init__(self, spec: EngineSpec) -> None:
        type(self).seen = [*self.seen, spec]
        if self.refuses is not None:
            raise self.refuses
        super().__init__(spec)


def test_replaced_built_in_target_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._registered, "onnx", Fussy)
    monkeypatch.setattr(Fussy, "seen", [])
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {ABS.replace("TYPE", "float")}')
    assert trial_of("onnx")(model) == ""
    assert [spec.input_size for spec in Fussy.seen] == [((2, 4),)]
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "K"
    assert trial_of("onnx")(model) == ""
    assert Fussy.seen[-1].input_size is None  # not all of it is known
    monkeypatch.setattr(Fussy, "refuses", ModelError("no kernel"))
    assert trial_of("onnx")(model).endswith("no kernel")
    monkeypatch.setattr(Fussy, "refuses", TargetError("no card"))
    with pytest.raises(TargetError, match="no card"):
        trial_of("onnx")(model)


def test_dynamic_size_is_unknown(save_onnx: SaveOnnx) -> None:
    registry._registered["opened"] = registry.engine_class("sdaa")
    try:
        found = only(
            save_onnx("g (float[N,K] x) => (float[N,K] y) { y = Abs(x) }"), Table("opened", {}, {}), trial_of("opened")
        )
    finally:
        del registry._registered["opened"]
    assert (found.level, found.source) == ("unknown", "not in the table, and it could not be tried")
