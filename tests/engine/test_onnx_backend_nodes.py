"""ONNX's own test of every operator: what ONNX Runtime itself gets right, the engines get right too.

The cases come with the onnx package. Each is run on bare ONNX Runtime first; where that gives the expected outputs, the
``onnx`` target must give the very same arrays, and ``sdaa`` in float32 the expected ones. What fails is listed with the
reason in ``onnx_backend_nodes.yaml``, and only what fails.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime
import pytest
import yaml
from onnx import numpy_helper
from onnx_node_cases import node_cases

from engine import EngineSpec, TecoInferError, open_engine
from engine.onnx.widen import widen

if TYPE_CHECKING:
    from onnx.backend.test.case.test_case import TestCase

pytestmark = [pytest.mark.slow, pytest.mark.long]  # a suite of its own in .ci/suites.yaml

KNOWN = Path(__file__).with_name("onnx_backend_nodes.yaml")
RUNTIME, BASELINE, CARD = "onnxruntime", "onnx", "sdaa"
NEWEST_IR = 11
"""ONNX Runtime reads no newer files, though it has some of the operators in them; no case needs what came after."""
NEWEST_OPSET = 27
"""The newest opset that ONNX Runtime has operators of, as far as it has any of it."""
ENOUGH = 1500
"""Minimum number of cases that must pass everywhere."""


@dataclass(frozen=True)
class Outcomes:
    """Why each failing case fails, by target; a case that bare ONNX Runtime fails is not tried on the others."""

    names: frozenset[str]
    failed: dict[str, dict[str, str]]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings(), np.errstate(all="ignore"):
        patch.setenv("ALLOW_RELEASED_ONNX_OPSET_ONLY", "0")  # ONNX Runtime's own: try what it has of the newest opset
        warnings.simplefilter("ignore")  # numpy's and onnx's own, while the expected values are computed
        cases = {case.name: copied(case) for case in node_cases()}
        file = tmp_path_factory.mktemp("nodes") / "model.onnx"
        failed: dict[str, dict[str, str]] = {RUNTIME: {}, BASELINE: {}, CARD: {}}
        for name, case in cases.items():
            for target, reason in why_wrong(case, file).items():
                failed[target][name] = reason
    return Outcomes(frozenset(cases), failed)


def copied(case: TestCase) -> TestCase:
    """Return a case whose model may be stamped with another version."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    return replace(case, model=model)


def why_wrong(case: TestCase, file: Path) -> dict[str, str]:
    """Return target -> reason for every target that fails a case."""
    assert case.model is not None
    assert case.data_sets is not None
    case.model.ir_version = min(case.model.ir_version, NEWEST_IR)
    try:
        truths = settled(case, file)
    except Exception as error:  # noqa: BLE001 - any failure of the runtime itself settles the case
        return {RUNTIME: line(error)}
    wrong: dict[str, str] = {}
    for (inputs, expected), truth in zip(case.data_sets, truths, strict=True):
        if BASELINE not in wrong:
            try:
                same(engine_outputs(BASELINE, file, inputs), truth)
            except (TecoInferError, AssertionError) as error:
                wrong[BASELINE] = line(error)
        if CARD not in wrong:
            try:
                on_card(file, inputs, expected, case)
            except (TecoInferError, AssertionError) as error:
                wrong[CARD] = line(error)
    return wrong


def settled(case: TestCase, file: Path) -> list[list[Any]]:
    """Return what bare ONNX Runtime gives for each data set, and leave the model it did so with in the file.

    Most operators of the newest opset only take more types than before. Where ONNX Runtime has none of that opset yet,
    the case is stamped with the newest one it has; it is the expected values that say whether that is the same.
    """
    for stamp in (None, NEWEST_OPSET):
        for entry in case.model.opset_import:
            if stamp is not None and not entry.domain:
                entry.version = min(entry.version, stamp)
        file.write_bytes(case.model.SerializeToString())
        try:
            truths = [bare(file, inputs) for inputs, _ in case.data_sets]
        except Exception as error:  # its exceptions share no base class
            if stamp is not None or "No Op registered" not in str(error):
                raise
            continue
        for truth, (_, expected) in zip(truths, case.data_sets, strict=True):
            compare(truth, expected, case)
        return truths
    raise AssertionError("not reached: the last stamp returns or raises")


def on_card(file: Path, inputs: Sequence[Any], expected: Sequence[Any], case: TestCase) -> None:
    """Compare the card in float32 with what is expected, or where that is rounded to float16 with ONNX's reference."""
    found = engine_outputs(CARD, file, inputs)
    try:
        compare(found, expected, case, wide=True)
    except AssertionError:
        half = [one for one in (*arrays(inputs), *expected) if getattr(one, "dtype", None) == np.float16]
        if not half:
            raise
        compare(found, in_float32(arrays(inputs), case), case, wide=True)


def in_float32(inputs: Sequence[Any], case: TestCase) -> list[Any]:
    """Compute a float16 case in float32."""
    from onnx.reference import ReferenceEvaluator

    model = widen(case.model)
    feed = {
        info.name: one.astype(np.float32) if one.dtype == np.float16 else one
        for info, one in zip(model.graph.input, inputs, strict=True)
    }
    return list(ReferenceEvaluator(model).run(None, feed))


def bare(file: Path, inputs: Sequence[Any]) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    # Left out by the engines, as it crashes on some float16 models; with it, bare results are rounded otherwise.
    session = onnxruntime.InferenceSession(
        str(file), options, providers=["CPUExecutionProvider"], disabled_optimizers=["MatmulTransposeFusion"]
    )
    names = [node.name for node in session.get_inputs()]
    found: list[Any] = session.run(None, dict(zip(names, arrays(inputs), strict=True)))
    return found


def arrays(inputs: Sequence[Any]) -> list[Any]:
    """Return numpy's scalars and ONNX's tensors as arrays; sequences and absent optionals stay as they are."""
    plain = [numpy_helper.to_array(one) if isinstance(one, onnx.TensorProto) else one for one in inputs]
    return [np.asarray(one) if isinstance(one, np.generic) else one for one in plain]


def engine_outputs(target: str, file: Path, inputs: Sequence[Any]) -> list[Any]:
    shapes = tuple(np.shape(array) if isinstance(array, np.ndarray) else () for array in arrays(inputs))
    size = shapes if all(all(shape) for shape in shapes) else None
    spec = EngineSpec(file, dtype="float32", divided=False, input_size=size if target == CARD else None)
    with open_engine(target, spec) as engine:
        found = engine(arrays(inputs))
    return [found] if isinstance(found, np.ndarray) else list(found)


def same(found: Sequence[Any], truth: Sequence[Any]) -> None:
    assert len(found) == len(truth)
    for one, other in zip(found, truth, strict=True):
        np.testing.assert_array_equal(one, other)
        assert getattr(one, "dtype", None) == getattr(other, "dtype", None)


def compare(found: Sequence[Any], expected: Sequence[Any], case: TestCase, wide: bool = False) -> None:
    """Compare as ONNX's own runner does.

    Args:
        found, expected: outputs. case: says how near is near enough.
        wide: whether float16 outputs come as float32, as on a card that was asked for float32.
    """
    assert len(found) == len(expected)
    for one, other in zip(found, arrays(expected), strict=True):
        if isinstance(other, (list, tuple)):
            assert isinstance(one, (list, tuple))
            compare(one, other, case, wide)
            continue
        assert np.shape(one) == np.shape(other)
        if other is None or np.asarray(other).dtype.kind in "OUS":
            np.testing.assert_array_equal(one, other)
            continue
        if wide and np.asarray(other).dtype == np.float16:
            assert one.dtype == np.float32
        else:
            assert np.asarray(one).dtype == np.asarray(other).dtype
        np.testing.assert_allclose(one, other, rtol=case.rtol, atol=case.atol)


def line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def known(target: str) -> dict[str, str]:
    """Return test -> reason as listed."""
    listed = yaml.safe_load(KNOWN.read_text(encoding="utf-8"))[target] or {}
    return {name: reason for reason, names in listed.items() for name in names}


def versions() -> dict[str, str]:
    return {"onnx": onnx.__version__, "onnxruntime": onnxruntime.__version__}


@pytest.mark.parametrize("target", [RUNTIME, BASELINE, CARD])
def test_failing_models_are_listed_with_their_reason(target: str, outcomes: Outcomes) -> None:
    """The list of ONNX Runtime's own failures holds for the versions it names; the engines' for all."""
    if target == RUNTIME and yaml.safe_load(KNOWN.read_text(encoding="utf-8"))["versions"] != versions():
        pytest.skip("the list was made with other versions")
    failed, listed = outcomes.failed[target], known(target)
    new = {name: reason for name, reason in failed.items() if name not in listed}
    assert not new, f"{target} fails tests that are not listed"
    tried = listed.keys() & outcomes.names - (outcomes.failed[RUNTIME].keys() if target != RUNTIME else set())
    tried -= {name for name in tried if listed[name].endswith("the machine may lack")}
    assert not tried - failed.keys(), f"{target} passes these now: take them off the list"


def test_nearly_all_tests_that_onnx_runtime_passes_pass_on_all_targets(outcomes: Outcomes) -> None:
    failed = {name for reasons in outcomes.failed.values() for name in reasons}
    assert len(outcomes.names - failed) >= ENOUGH
    for target in (BASELINE, CARD):
        assert len(outcomes.failed[target]) < 0.05 * len(outcomes.names)
