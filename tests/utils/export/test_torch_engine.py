# ruff: noqa: E402 - what is imported later needs what importorskip looks for
"""The engine that computes with a PyTorch module under the signature of an ONNX file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxsim")

from engine import EngineError, EngineSpec, ModelError, available_targets, open_engine, provider, registry
from utils.export.torch_engine import TARGET, pytorch_target
from utils.export.torch_export import export_onnx

pytestmark = pytest.mark.torch


class Two(torch.nn.Module):
    """Two inputs and two outputs; in training mode it drops half of the first one."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(5, 3)
        self.drop = torch.nn.Dropout(0.5)

    def forward(self, x: Any, ids: Any) -> Any:
        found = self.drop(x) + self.table(ids)
        return found, found.sum(1)


@pytest.fixture
def registered() -> Iterator[Callable[[Callable[[], Any]], str]]:
    yield pytorch_target
    registry._registered.pop(TARGET, None)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    torch.manual_seed(0)
    network, stem = Two(), tmp_path_factory.mktemp("made") / "two"
    inputs = (torch.randn(2, 3), torch.tensor([1, 4]))
    export_onnx(network, inputs, stem, output_names=["all", "sums"], labels=["a", "b"], exporter="torchscript")
    return network, stem


def test_outputs_are_those_of_the_module(exported: tuple[Any, Path], registered: Callable[..., str]) -> None:
    network, stem = exported
    changed = Two()
    changed.load_state_dict({"table.weight": network.table.weight * 2})
    target = registered(lambda: changed)
    assert target in available_targets()
    assert provider(target) == "registered"
    x, ids = np.arange(12, dtype=np.float32).reshape(4, 3), np.array([0, 1, 2, 4])
    file = stem.with_name("two_dyn.onnx")
    with open_engine(target, EngineSpec(ckpt=file)) as engine, open_engine("onnx", EngineSpec(ckpt=file)) as other:
        found, exact = engine([x, ids]), other([x, ids])
        assert [spec.name for spec in engine.outputs] == ["all", "sums"]
        assert engine.metadata == other.metadata
        assert (engine.dtype, "PyTorch" in engine.describe()) == ("float32", True)
    table = network.table.weight.detach().numpy()[ids]
    np.testing.assert_allclose(found[0], x + 2 * table, rtol=1e-6)
    np.testing.assert_allclose(found[1], (x + 2 * table).sum(1), rtol=1e-5)
    np.testing.assert_allclose(exact[0], x + table, rtol=1e-6)


def test_a_file_of_another_module_is_refused(exported: tuple[Any, Path], registered: Callable[..., str]) -> None:
    class One(Two):
        def forward(self, x: Any, ids: Any) -> Any:
            return super().forward(x, ids)[0]

    _, stem = exported
    engine = open_engine(registered(One), EngineSpec(ckpt=stem.with_name("two_dyn.onnx")))
    with engine, pytest.raises(EngineError, match="2 outputs, and the PyTorch module returns 1"):
        engine([np.zeros((2, 3), np.float32), np.array([0, 1])])


def test_a_float16_file_is_refused(exported: tuple[Any, Path], registered: Callable[..., str]) -> None:
    with pytest.raises(ModelError, match="float16"):
        open_engine(registered(Two), EngineSpec(ckpt=exported[1].with_name("two_float16_dyn.onnx")))
