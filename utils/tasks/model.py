"""What a task may know of a model, as plain data that travels to other processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from engine import ConfigError, Engine, TensorSpec

if TYPE_CHECKING:
    from utils.outputs import Forms, OutputForm
    from utils.stored import Stored


@dataclass(frozen=True, eq=False, repr=False)  # what is generated costs every start
class Model:
    """A model's tensors, the sizes it has plans for, and what its export stored.

    Attributes:
        ckpt: the ONNX file.
        inputs, outputs: its tensors, inputs in the order a call takes them.
        dtype: dtype that ``prepare`` should give the input that sets the batch, such as ``"float16"``.
        dims: sizes that a symbolic dimension may take, rising; a symbol that is missing may have any size.
        metadata: what the export stored, as text; :attr:`stored` reads it.
        batch: the batch the model is fixed to; ``None``: any.
        named: where several models make one answer, all of them by name, this one among them.
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
        return cls(
            engine.spec.ckpt,
            tuple(engine.inputs),
            tuple(engine.outputs),
            engine.input_dtype if engine.inputs else engine.dtype,
            dict(engine.spec.dims),
            dict(engine.metadata),
            engine.static_batch,
        )

    @property
    def float_dtype(self) -> str:
        """:attr:`dtype`, for a task whose samples are floats.

        Raises:
            ConfigError: the input takes something else, which would cut them.
        """
        if not self.dtype.startswith(("float", "bfloat")):
            raise ConfigError(
                f"{self.ckpt}: its input takes {self.dtype}, and this task gives floats; export it with a float input, "
                "and convert in the graph"
            )
        return self.dtype

    @cached_property
    def stored(self) -> Stored:
        """What the export stored: labels, resize, crop, mean, std, interpolation, vocabulary, ..."""
        from utils.stored import Stored

        return Stored(self.metadata, self.ckpt)

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
        """Return what an output is: logits, probabilities or labels, and along which axis its classes lie.

        Args:
            options: the flags ``output_kind`` and ``output_layout`` among them go first.
            place: of the output.

        Raises:
            ModelError: the metadata cannot be read, or contradict the graph.
        """
        from utils.outputs import with_flags

        return with_flags(self.forms.of(place), options, self.ckpt)


def described(engines: Mapping[str, Engine]) -> Model:
    """Describe opened engines for a task: the first one, with all of them by name where there are several."""
    models = {name: Model.of(engine) for name, engine in engines.items()}
    first = next(iter(models.values()))
    return first if set(models) == {"model"} else replace(first, named=models)
