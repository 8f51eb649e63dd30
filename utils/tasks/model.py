"""The description of a model for a task, as plain data that can be pickled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine import ConfigError, Engine, ModelError, TensorSpec

if TYPE_CHECKING:
    from utils.outputs import Forms, OutputForm
    from utils.stored import ModelMetadata


@dataclass(frozen=True, eq=False, repr=False)  # what is generated costs every start
class Model:
    """A model's tensors, planned sizes and metadata.

    Attributes:
        ckpt: the ONNX file.
        inputs, outputs: its tensors, in the order of a call.
        dtype: of the array that ``prepare`` returns for the input that determines the batch, such as ``"float16"``.
        dims: planned sizes of symbolic dimensions, ascending; a symbol that is missing may have any size.
        metadata: of the export, as text; :attr:`stored` parses it.
        batch: the model's fixed batch size; ``None``: any.
        named: for a task with several models, all of them by name, including this one.
    """

    ckpt: Path
    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()
    dtype: str = "float32"
    dims: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    batch: int | None = None
    named: Mapping[str, Model] = field(default_factory=dict)

    @classmethod
    def of(cls, engine: Engine) -> Model:
        """Describe an opened engine."""
        dtype, spec = engine.input_dtype if engine.inputs else engine.dtype, engine.spec
        tensors = tuple(engine.inputs), tuple(engine.outputs)
        return cls(spec.ckpt, *tensors, dtype, dict(spec.dims), dict(engine.metadata), engine.static_batch)

    @property
    def float_dtype(self) -> str:
        """:attr:`dtype`, for a task with floating-point samples.
        Raises ConfigError if the input has another kind of dtype."""
        if not self.dtype.startswith(("float", "bfloat")):
            raise ConfigError(
                f"{self.ckpt}: its input takes {self.dtype}, and this task gives floats; export it with a float input, "
                "and convert in the graph"
            )
        return self.dtype

    def sizes(self, place: int, axis: int) -> tuple[int, ...]:
        """Return the sizes that an axis of an input may have: the fixed one, or the planned ones; empty: any."""
        spec = self.inputs[place]
        fixed = spec.shape[axis] if axis < len(spec.shape) else None
        symbol = spec.symbols[axis] if spec.symbols else None
        return (fixed,) if fixed is not None else tuple(self.dims.get(symbol or "", ()))

    def unusable(self, key: str, what: str) -> ModelError:
        """Return the error for metadata that cannot be used; ``what``: the reason."""
        return ModelError(f"{self.ckpt}: metadata {key!r}: {what}; export the model again")

    def notes(self, key: str) -> dict[str, Any]:
        """Return a JSON object of the metadata, empty if missing. Raises ModelError if the value is no object."""
        found = self.stored.json(key, {})
        if not isinstance(found, dict):
            raise self.unusable(key, f"{found!r} is not a JSON object")
        return found

    @cached_property
    def stored(self) -> ModelMetadata:
        """The parsed metadata: labels, resize, crop, mean, std, interpolation, vocabulary, ..."""
        from utils.stored import ModelMetadata

        return ModelMetadata(self.metadata, self.ckpt)

    @cached_property
    def forms(self) -> Forms:
        """The forms of its outputs by metadata and graph, without flags."""
        from utils.outputs import Forms

        return Forms(self.ckpt, self.outputs, self.stored)

    @cached_property
    def class_forms(self) -> dict[object, OutputForm]:
        """The form of the first output by the values of the flags that select it; filled by ``class_rows``."""
        return {}

    def form(self, options: object, place: int = 0) -> OutputForm:
        """Return the form of an output: logits, probabilities or labels, and the axis of its classes.

        Args:
            options: ``output_kind`` and ``output_layout``, if set, override metadata and graph.
            place: index of the output.

        Raises:
            ModelError: the metadata is invalid, or contradicts the graph.
        """
        from utils.outputs import with_flags

        return with_flags(self.forms.of(place), options, self.ckpt)


def described(engines: Mapping[str, Engine]) -> Model:
    """Describe opened engines: the first one; of several, with all of them as :attr:`Model.named`."""
    models = {name: Model.of(engine) for name, engine in engines.items()}
    first = next(iter(models.values()))
    return first if set(models) == {"model"} else replace(first, named=models)
