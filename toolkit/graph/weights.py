"""Models without their large weights, which makes copying and opening a graph fast and keeps one copy of the weights.

Only large float32 weights are removed: other types are converted for an engine, and small ones may determine shapes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from engine import Array
from toolkit.graph.nodes import load_named
from toolkit.graph.tensors import NUMBERS

if TYPE_CHECKING:
    from onnx import ModelProto

    from engine.backends import HostSession

_FLOAT = 1
_LARGE = 1024  # largest number of elements of a weight that stays in the model

_sources: WeakValueDictionary[tuple[str, int, int], LightModel] = WeakValueDictionary()


class LightModel:
    """A loaded model without large weights, not to be changed, and these by name."""

    def __init__(self, model: ModelProto) -> None:
        self.model, self.weights = _taken_out(model, (_FLOAT,))

    def whole(self) -> ModelProto:
        """Return a copy with all weights."""
        from onnx import ModelProto, numpy_helper

        model = ModelProto()
        model.CopyFrom(self.model)
        for tensor in model.graph.initializer:
            if tensor.name in self.weights:
                tensor.CopyFrom(numpy_helper.from_array(self.weights[tensor.name], tensor.name))
        return model


def source(path: Path) -> LightModel:
    """Return a model, loaded once while referenced; raise ModelError if invalid (:mod:`toolkit.graph.nodes`)."""
    if not path.is_file():
        return LightModel(load_named(path))  # raises with the reason
    state = path.stat()
    key = (str(path.resolve()), state.st_mtime_ns, state.st_size)
    found = _sources.get(key)
    if found is None:
        found = _sources[key] = LightModel(load_named(path))
    return found


def open_marked(model: ModelProto, weights: Mapping[str, Array]) -> HostSession:
    """Open a graph without optimisations, so that every node output is accessible; large weights are not copied."""
    from engine.backends import HostSession

    light, others = _taken_out(model, NUMBERS)
    _drop_unused(light)
    others = {name: others[name] for name in (t.name for t in light.graph.initializer) if name in others}
    held = {tensor.name for tensor in light.graph.initializer}
    return HostSession(light, weights={**others, **{n: w for n, w in weights.items() if n in held}}, optimised=False)


def _drop_unused(model: ModelProto) -> None:
    """Remove unused weights: ONNX Runtime removes them too, and then rejects their values."""
    from engine.onnx import used_names

    used = {name for node in model.graph.node for name in used_names(node)}
    used.update(info.name for info in model.graph.output)
    kept = [tensor for tensor in model.graph.initializer if tensor.name in used]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)


def _taken_out(model: ModelProto, kinds: Iterable[int]) -> tuple[ModelProto, dict[str, Array]]:
    """Return a copy without the values of large weights of some types, and the values."""
    from onnx import ModelProto, TensorProto, numpy_helper

    from engine.onnx import origin

    light = ModelProto(
        ir_version=model.ir_version,
        opset_import=model.opset_import,
        metadata_props=model.metadata_props,
        functions=model.functions,
    )
    graph = light.graph
    graph.name = model.graph.name
    for field in ("node", "input", "output", "value_info"):
        getattr(graph, field).extend(getattr(model.graph, field))
    weights: dict[str, Array] = {}
    for tensor in model.graph.initializer:
        if tensor.data_type not in kinds or prod(tensor.dims) <= _LARGE or origin(tensor):
            graph.initializer.append(tensor)
            continue
        weights[tensor.name] = numpy_helper.to_array(tensor)
        kept = graph.initializer.add(name=tensor.name, dims=tensor.dims, data_type=tensor.data_type)
        kept.data_location = TensorProto.EXTERNAL
        kept.external_data.add(key="location", value=tensor.name)
    return light, weights
