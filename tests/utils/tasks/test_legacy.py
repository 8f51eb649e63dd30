"""Functions of a task's view in the old form, called by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from support import SaveOnnx

from engine import EngineSpec, open_engine
from utils.tasks.base import Flag, Task
from utils.tasks.legacy import LegacyTask
from utils.tasks.options import Options


class Scaled(Task):
    """A task whose ``infer`` reads a flag."""

    name, domain = "scaled", "any"
    flags = (Flag("--factor", "factor of the outputs", 3.0, float),)
    load = prepare = decode = metric = show = lambda self, *given: None  # type: ignore[assignment,method-assign]

    def infer(self, engines: Mapping[str, Any], arrays: Any, contexts: Any) -> Any:
        """Multiply the outputs by the flag's value and add the state."""
        return engines["model"](arrays) * self.options.factor + self.state

    def input_size(self) -> Any:
        """Return a size that depends on the flag."""
        return ((int(self.options.factor),),)


def test_infer_of_a_view_has_the_flags_defaults(save_onnx: SaveOnnx) -> None:
    view: Any = LegacyTask.view(Scaled)
    path = save_onnx("m (float[N, 2] x) => (float[N, 2] y) { y = Identity(x) }")
    with open_engine("onnx", EngineSpec(path)) as engine:
        found = view.infer({"model": engine}, [np.ones((1, 2), np.float32)], None, 1.0)
    np.testing.assert_array_equal(found, [[4.0, 4.0]])
    assert view.input_size(Options(factor=5)) == ((5,),)
