"""Results are not overwritten by later calls, even if an engine reuses its buffers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import SaveOnnx

from engine import Array, Engine, EngineError, EngineSpec, TensorSpec, open_engine
from engine.backends.ort import OnnxRuntimeEngine
from engine.batching import run_sharded
from engine.registry import _registered
from engine.signature import Dim
from engine.tecoinfer_pytorch import TecoInferEngine

PATIENCE = 60.0
"""Seconds after which a test that would hang fails."""


class OneBuffer(Engine):
    """Gives twice its input, always in the same memory; of a fixed batch where it is opened with one."""

    batch: Dim = "n"

    def __init__(self, spec: EngineSpec | None = None) -> None:
        super().__init__(spec or EngineSpec(ckpt=Path("m.onnx")))
        size = self.batch if isinstance(self.batch, int) else None
        symbols = (self.batch if size is None else None, None)
        tensors = [TensorSpec(name, np.dtype(np.float32), (size, 3), 0, symbols) for name in "xy"]
        self.bind(tensors[:1], tensors[1:], [[self.batch, 3]])
        self.independent = self.batching._analysed = True
        self.room = np.zeros((64, 3), np.float32)
        self.calls = self.most = self.inside = 0

    def compute(self, inputs: list[Array]) -> list[Array]:
        self.inside += 1
        self.most = max(self.most, self.inside)
        found = self.room[: len(inputs[0])]
        np.multiply(inputs[0], 2, out=found)
        self.calls += 1
        self.inside -= 1
        return [found]

    def infer(self, inputs: list[Array]) -> list[Array]:
        size = self.static_batch
        if size is None or len(inputs[0]) == size:
            return self.compute(inputs)
        return self.batching.in_pieces(self, self.compute, inputs, size)


class TwoAtATime(OneBuffer):
    """Takes two samples at a time."""

    batch = 2


class OwnPieces(OneBuffer):
    """Takes two samples at a time, and cuts its calls itself."""

    def infer(self, inputs: list[Array]) -> list[Array]:
        return run_sharded(self.compute, inputs, self.inputs, self.outputs, 2)


class SameShards(OneBuffer):
    """Answers all shards in one buffer."""

    def infer_shards(self, shards: list[list[Array]]) -> list[list[Array]]:
        return [self.compute(shard) for shard in shards]


class Owned(OneBuffer):
    """Promises that its outputs are owned by the caller, so they are not copied."""

    outputs_owned = inputs_untouched = True

    def infer(self, inputs: list[Array]) -> list[Array]:
        return [inputs[0] * 2]


class Later(Owned):
    """Overrides ``infer`` without repeating the promises of its base class."""

    def infer(self, inputs: list[Array]) -> list[Array]:
        return self.compute(inputs)


class Writes(OneBuffer):
    """Overwrites its inputs."""

    def infer(self, inputs: list[Array]) -> list[Array]:
        inputs[0] *= 2
        return inputs


class InOneRoom:
    """A mix-in that gives the results of the engine behind it in one buffer; its reports fail, too."""

    def infer(self, inputs: list[Array]) -> list[Array]:
        found = super().infer(inputs)[0]  # type: ignore[misc]
        room: Array = self.__dict__.setdefault("shared", np.zeros((64, 3), np.float32))
        room[: len(found)] = found
        return [room[: len(found)]]

    def device_report(self) -> dict[str, Any]:
        raise KeyError("temperature")


class Mixed(InOneRoom, Owned):
    """Has the ``infer`` of a mix-in before that of the class that promises."""


class MixedWithOurs(InOneRoom, OnnxRuntimeEngine):
    """The same before an engine of the zoo."""


class SetOnOurs(OnnxRuntimeEngine):
    """Changes an object of an engine of the zoo, and no method of its class."""

    def __init__(self, spec: EngineSpec) -> None:
        super().__init__(spec)
        compute, room = self.infer, np.zeros((64, 3), np.float32)

        def infer(inputs: list[Array]) -> list[Array]:
            found = room[: len(inputs[0])]
            found[:] = compute(inputs)[0]
            return [found]

        self.infer = infer  # type: ignore[method-assign]


def rows(count: int, start: int = 0) -> Array:
    return np.arange(start, start + 3 * count, dtype=np.float32).reshape(count, 3)


ENGINES = (OneBuffer, TwoAtATime, OwnPieces, Later, Writes, Mixed)


@pytest.mark.parametrize("kind", ENGINES)
def test_results_outlast_later_calls(kind: type[OneBuffer]) -> None:
    given = [rows(count, 10 * count) for count in (5, 4, 1, 2)]
    with kind() as engine:
        called = [engine(x) for x in given]
        queued = [future.result() for future in [engine.run_async(x) for x in given]]
    for x, one, other in zip(given, called, queued, strict=True):
        np.testing.assert_array_equal(one, 2 * x)
        np.testing.assert_array_equal(other, 2 * x)


@pytest.mark.parametrize("streams", [1, 3])
@pytest.mark.parametrize("kind", [MixedWithOurs, SetOnOurs])
def test_third_party_subclasses_inherit_no_promise(
    kind: type[OnnxRuntimeEngine], streams: int, save_onnx: SaveOnnx
) -> None:
    model = save_onnx(
        '<ir_version: 10, opset_import: ["" : 18]> net (float[n, 3] x) => (float[n, 3] y) { y = Add(x, x) }'
    )
    given = [rows(count, 10 * count) for count in (5, 4, 1, 2)]
    with kind(EngineSpec(ckpt=model, streams=streams)) as engine:
        called = [engine(x) for x in given]
        queued = [future.result() for future in [engine.run_async(x) for x in given]]
    for x, one, other in zip(given, called, queued, strict=True):
        np.testing.assert_array_equal(one, 2 * x)
        np.testing.assert_array_equal(other, 2 * x)


def test_errors_of_renamed_reports_become_engine_errors() -> None:
    def fails(self: Any) -> Any:
        raise KeyError("no card")

    class Renamed(OneBuffer):
        describe = device_seconds = fails
        close = lambda self: fails(self)  # noqa: E731

    engine = Renamed()
    for asked in (engine.describe, engine.device_seconds, engine.release, Mixed().device_report):
        with pytest.raises(EngineError, match="KeyError"):
            asked()


@pytest.mark.parametrize("kind", ENGINES)
def test_results_of_shards_outlast_one_another(kind: type[OneBuffer]) -> None:
    given = [[rows(2, start)] for start in (0, 10, 20)]
    with kind() as engine:
        found = [shard[0] for shard in engine.call_shards(given)]
    np.testing.assert_array_equal(found, [2 * x for (x,) in given])


def test_shards_in_one_buffer_are_refused() -> None:
    with SameShards() as engine:
        np.testing.assert_array_equal(engine.call_shards([[rows(2)]]), [[2 * rows(2)]])
        with pytest.raises(EngineError, match="same memory"):
            engine.call_shards([[rows(2)], [rows(2, 10)]])


@pytest.mark.parametrize("mapped", [False, True])
def test_pieces_in_one_buffer_are_put_together(mapped: bool) -> None:
    engine = OneBuffer()

    def mapper(shards: Sequence[list[Array]]) -> Any:
        return map(engine.compute, shards)

    found = run_sharded(engine.compute, [rows(7)], engine.inputs, engine.outputs, 2, mapper if mapped else None)
    np.testing.assert_array_equal(found[0], 2 * rows(7))


def test_results_of_the_historical_interface_are_copies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(_registered, "one-buffer", OneBuffer)
    engine = TecoInferEngine(ckpt=tmp_path / "m.onnx", input_size=[[1, 3]], target="one-buffer", pass_path="")
    first, second = engine(rows(2)), engine(rows(2, 10))
    np.testing.assert_array_equal([first, second], [2 * rows(2), 2 * rows(2, 10)])
    engine.release()


def test_arrays_of_the_caller_are_unchanged() -> None:
    given = rows(3)
    with Writes() as engine:
        found = engine(given)
        engine.call_shards([[given]])
    assert not np.shares_memory(found, given)  # type: ignore[arg-type]
    np.testing.assert_array_equal(given, rows(3))


def test_promised_arrays_are_not_copied() -> None:
    class Hands(Owned):
        outputs_owned = inputs_untouched = True

        def infer(self, inputs: list[Array]) -> list[Array]:
            self.got, self.gave = inputs[0], inputs[0] * 2
            return [self.gave[:]]

    given = rows(3)
    with Hands() as engine:
        found = engine(given)
        assert engine.got is given
        assert np.shares_memory(found, engine.gave)  # type: ignore[arg-type]
    assert (Owned.outputs_owned, Later.outputs_owned, Later.inputs_untouched) == (True, False, False)


@pytest.mark.parametrize("direct", [True, False])
def test_calls_of_many_threads_compute_one_at_a_time(direct: bool) -> None:
    given = [rows(4, 100 * i) for i in range(16)]
    found: dict[int, Array] = {}
    ready = threading.Barrier(len(given))

    def call(i: int) -> None:
        ready.wait(PATIENCE)
        for _ in range(20):
            result = engine(given[i]) if direct else engine.run_async(given[i]).result(PATIENCE)
            found[i] = np.asarray(result)
            assert np.array_equal(found[i], 2 * given[i])

    with OneBuffer() as engine:
        threads = [threading.Thread(target=call, args=(i,)) for i in range(len(given))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
    assert len(found) == len(given)
    assert (engine.most, engine.calls) == (1, 16 * 20)


def test_a_call_inside_a_call_does_not_wait_for_itself() -> None:
    class Inner(OneBuffer):
        def infer(self, inputs: list[Array]) -> list[Array]:
            return self.compute([self(inputs[0][:1])]) if len(inputs[0]) > 1 else self.compute(inputs)  # type: ignore[list-item]

    class Flat(Inner):
        def __init__(self) -> None:
            super().__init__()
            self.outputs = [TensorSpec("y", np.dtype(np.float32), (None, 3), None)]

    with Flat() as engine:
        np.testing.assert_array_equal(engine(rows(3)), 4 * rows(1))


MODEL = """<ir_version: 10, opset_import: ["" : 18]>
net (float[n, 3] x) => (float[n, 3] y, float[n, 3] same, float[2, 2] fixed) <float[2, 2] fixed = {1, 2, 3, 4}>
{ y = Add(x, x) same = Identity(x) }"""
FIXED = MODEL.replace("[n, 3]", "[2, 3]")


@pytest.mark.parametrize("target", ["onnx", "cpu", "sdaa", "null"])
@pytest.mark.parametrize("model", [MODEL, FIXED])
def test_engines_of_the_zoo_fulfil_their_contract(target: str, model: str, save_onnx: SaveOnnx) -> None:
    """Outputs of a call change neither with the calls after it, nor with the inputs, nor do they change the model."""
    given = [rows(4, start) for start in (0, 20)]
    with open_engine(target, EngineSpec(save_onnx(model), batch_size=4)) as engine:
        assert type(engine).outputs_owned
        first = _called(engine, given[0])
        kept = [array.copy() for array in first]
        for other in (given[1], given[0]):
            found = _called(engine, other)
            for array, value in zip(first, kept, strict=True):
                np.testing.assert_array_equal(array, value)
            for array in found:
                assert not any(np.shares_memory(array, one) for one in (*first, *given))
        for array in first:
            array[...] = 77  # what belongs to the caller may be written to
        again = _called(engine, given[0])
        for array, value in zip(again, kept, strict=True):
            np.testing.assert_array_equal(array, value)


def _called(engine: Engine, x: Array) -> list[Array]:
    found: Callable[..., Any] = engine(x.astype(engine.input_dtype))  # type: ignore[assignment]
    return list(found)  # type: ignore[call-overload, no-any-return]
