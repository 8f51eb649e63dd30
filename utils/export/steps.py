"""The steps of an export that are the same for every framework: run the source model, trace it, check, write."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from engine import Array, ModelError
from utils.export.onnx_files import (
    Expected,
    ExportResult,
    ModelNotes,
    check_dynamic,
    first_line,
    three_variants,
    write_onnx_files,
)

if TYPE_CHECKING:
    from onnx import ModelProto


class Trainable(Protocol):
    """What modules and layers of the frameworks have in common."""

    training: bool

    def eval(self) -> object:
        """Let it compute as in inference."""

    def train(self) -> object:
        """Let it compute as in training."""


class Framework(NamedTuple):
    """What a framework does with a model: the source's outputs on inputs; its static and its dynamic graph."""

    run: Callable[[Sequence[Array]], list[Array]]
    trace: Callable[[], tuple[ModelProto, ModelProto]]


def write_exported(
    model: Trainable,
    framework: Framework,
    stem: Path,
    tried: Sequence[list[Array]],
    axes: Sequence[Mapping[int, str]],
    notes: ModelNotes,
    float16: bool,
    tolerances: Mapping[str, float],
) -> list[ExportResult]:
    """Run and trace a model in eval mode, then write its files; all of them or none.

    Args:
        model: the source. framework: how it is run and traced.
        stem: path and start of the file names.
        tried: inputs to compare on (:func:`~utils.export.onnx_files.dynamic_inputs`).
        axes: per input, its dynamic axes and their names.
        notes: what the files say of themselves.
        float16: write the float16 file too.
        tolerances: largest relative error allowed, by dtype.

    Raises:
        ModelError: the model cannot be exported, a check failed, or a file differs too much; no file is replaced.
    """
    with _evaluated(model):
        cases = [Expected(inputs, framework.run(inputs)) for inputs in tried]
        static, free = framework.trace()
    check_dynamic(free, axes)
    return write_onnx_files(stem, three_variants(static, free, cases, float16), notes, tolerances)


@contextmanager
def _evaluated(model: Trainable) -> Iterator[None]:
    """Put the model in eval mode for a while."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        if training:
            model.train()


def source_outputs(
    run: Callable[[], Any],
    inputs: Sequence[Array],
    tensor: type,
    errors: tuple[type[Exception], ...],
    reason: Callable[[BaseException], str] = first_line,
) -> list[Array]:
    """Return what a source model computes, as arrays.

    Args:
        run: runs it; returns a tensor, or several.
        inputs: what it is run on.
        tensor: the framework's class of tensors.
        errors: what it raises on shapes that do not fit. reason: what one of them says, in one line.

    Raises:
        ModelError: it cannot run inputs of these shapes.
    """
    try:
        outputs = run()
    except errors as error:
        shapes = [list(x.shape) for x in inputs]
        raise ModelError(
            f"the source model cannot run inputs of shapes {shapes}: {reason(error)}; leave the axis out of dynamic"
        ) from error
    tensors: list[Any] = [outputs] if isinstance(outputs, tensor) else list(outputs)
    return [one.numpy() for one in tensors]


def told(model: object, provenance: Mapping[str, str] | None, opset: int, **versions: str) -> dict[str, str]:
    """Return where a model comes from, and by which versions it was exported."""
    return dict(provenance or {"source": type(model).__name__}) | versions | {"opset": str(opset)}
