"""Steps of an export common to all frameworks: run the source model, trace it, check the files, write them."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from engine import Array, ConfigError, ModelError
from utils.export.agree import relative_error
from utils.export.dynamic import check_dynamic, dynamic_axes, dynamic_inputs
from utils.export.forms import DYNAMIC, HALF, STATIC
from utils.export.graphs import first_line
from utils.export.nested import Example, example, output_names, outputs
from utils.export.onnx_files import Expected, ExportResult, Made, ModelNotes, Traced, variants_of, write_onnx_files

if TYPE_CHECKING:
    from onnx import ModelProto

_REPEATS = 1e-3
"""Maximum relative error between two runs on the same inputs; more indicates random numbers or state."""


class Trainable(Protocol):
    """Common interface of the frameworks' modules."""

    training: bool
    forward: Callable[..., Any]

    def eval(self) -> object:
        """Set inference mode."""

    def train(self) -> object:
        """Set training mode."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Input of a framework's tracer.

    Attributes:
        names: of the outputs. tried: arrays per case, one per input; the first case is the example.
        axes: dynamic axes and their names, per input.
        flat: whether to wrap the model so that it takes a tensor per argument and returns a tuple of tensors.
    """

    example: Example
    names: list[str]
    tried: list[list[Array]]
    axes: list[dict[int, str]]
    flat: bool
    forms: tuple[str, ...]

    def graphs(self, static: Callable[[], ModelProto], free: Callable[[], ModelProto]) -> Traced:
        """Return the static and the dynamic graph, each if a requested form needs it."""
        made = attempt(static) if STATIC in self.forms else None
        return made, attempt(free) if {DYNAMIC, HALF} & {*self.forms} else None


class Framework(NamedTuple):
    """Operations of a framework.

    Attributes:
        kind, tensor: classes of modules and tensors. kinds: classes of example inputs.
        parts: a module and all its submodules. to_array, to_tensor: conversions of one tensor or array.
        no_grad: context in which gradients are not computed. trace: returns the graphs of a model.
        reason: the message of an error of the framework, in one line.
    """

    kind: type
    tensor: type
    kinds: tuple[type, ...]
    parts: Callable[[Any], Iterable[Trainable]]
    to_array: Callable[[Any], Array]
    to_tensor: Callable[[Array], Any]
    no_grad: Callable[[], AbstractContextManager[Any]]
    trace: Callable[[Plan], Traced]
    reason: Callable[[BaseException], str]


class Wanted(NamedTuple):
    """Options of an export; names ``None``: those of the model."""

    input_names: Sequence[str] | None
    output_names: Sequence[str] | None
    dynamic: Mapping[str, Mapping[int, str]] | None
    notes: ModelNotes
    forms: tuple[str, ...]
    tolerances: Mapping[str, float]


def write_exported(
    model: Any, framework: Framework, example_inputs: Any, stem: Path, wanted: Wanted
) -> list[ExportResult]:
    """Run and trace a model in eval mode, then write the files that pass the checks.

    Raises:
        ConfigError: invalid name or axis, or ``model`` is not a module of the framework.
        ExportError: a form failed; the others were written.
        ModelError: the model cannot be run or exported; no file is written.
    """
    module: Trainable = model
    if not isinstance(model, framework.kind):
        raise ConfigError(f"the model is a {type(model).__name__}, not a {framework.kind.__name__}; pass the module")
    given = example(example_inputs, framework.kinds, _parameters(module), wanted.input_names)
    arrays = [_array(framework, f"input {n!r}", one) for n, one in zip(given.names, given.tensors, strict=True)]
    with _evaluated(module, framework.parts(model)):
        first, plain = _run(model, framework, given, arrays, changed=False)
        names = output_names([name for name, _ in first], wanted.output_names, given.names)
        axes = dynamic_axes(arrays, given.names, names, wanted.dynamic)
        tried = dynamic_inputs(arrays, axes)
        _check_repeats(model, framework, given, arrays, first)
        _warn_uninformative(first)
        answers = [first, *(_run(model, framework, given, inputs, changed=True)[0] for inputs in tried[1:])]
        cases = [Expected(inputs, [array for _, array in one]) for inputs, one in zip(tried, answers, strict=True)]
        static, free = framework.trace(Plan(given, names, tried, axes, not (plain and given.plain), wanted.forms))
    if free is not None and not isinstance(free, ModelError):
        free = check_dynamic(free, axes)
    failed = [one for one in (static, free) if isinstance(one, ModelError)]
    if len(failed) == sum(one is not None for one in (static, free)):
        raise failed[0]
    return write_onnx_files(stem, variants_of(static, free, cases, wanted.forms), wanted.notes, wanted.tolerances)


def attempt(make: Callable[[], ModelProto]) -> Made:
    """Return a graph, or the ModelError that was raised."""
    try:
        return make()
    except ModelError as error:
        return error


def _parameters(model: Trainable) -> list[str]:
    """Return the argument names of a module's ``forward``; empty if there is no signature."""
    try:
        found = inspect.signature(model.forward).parameters.values()
    except (TypeError, ValueError):
        return []
    return [one.name for one in found if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]


@contextmanager
def _evaluated(model: Trainable, parts: Iterable[Trainable]) -> Iterator[None]:
    """Set eval mode within the context; each submodule's mode is restored."""
    modes = [(part, part.training) for part in parts]
    was = model.training
    model.eval()
    try:
        yield
    finally:
        if was:
            model.train()
        for part, training in modes:
            part.training = training


def _run(
    model: Any, framework: Framework, given: Example, arrays: Sequence[Array], *, changed: bool
) -> tuple[list[tuple[str, Array]], bool]:
    """Return the source model's outputs by name, and whether it returns one tensor, or a tuple of distinct ones."""
    tensors = [framework.to_tensor(x) for x in arrays]
    try:
        with framework.no_grad():
            found = given.call(model, tensors)
    except Exception as error:  # a model's own code may raise anything
        shapes = [list(x.shape) for x in arrays]
        fix = "leave the axis out of dynamic" if changed else "pass example_inputs that the model accepts"
        raise ModelError(
            f"the source model cannot run inputs of shapes {shapes}: {framework.reason(error)}; {fix}"
        ) from error
    answers = outputs(found, (framework.tensor,))
    named = [(name, _array(framework, f"output {name!r} of the source model", one)) for name, one in answers]
    parts = found if isinstance(found, (tuple, list)) else [found]
    own = len({id(one) for one in (*parts, *tensors)}) == len(parts) + len(tensors)
    return named, own and all(isinstance(one, framework.tensor) for one in parts)


def _array(framework: Framework, what: str, tensor: Any) -> Array:
    """Return a tensor as an array of a dtype that an ONNX file supports."""
    try:
        array = framework.to_array(tensor)
    except (TypeError, RuntimeError, ValueError) as error:
        reason = first_line(error).rstrip(".")
    else:
        if array.dtype.kind in "fiub":
            return array
        reason = f"it is {array.dtype}"
    fix = "use a dense tensor of float32 (model.float()), float16, integers or bool"
    raise ModelError(f"{what} cannot be exported: {reason}; {fix}")


def _check_repeats(
    model: Any, framework: Framework, given: Example, arrays: Sequence[Array], first: list[tuple[str, Array]]
) -> None:
    """Raise ModelError if a second run of the source model on the same inputs differs."""
    again, _ = _run(model, framework, given, arrays, changed=False)
    for (name, a), (_, b) in zip(first, again, strict=True):
        error = relative_error([a], [b])
        if error > _REPEATS:
            raise ModelError(
                f"output {name!r} of the source model is not deterministic (relative error {error:.1e} between two "
                "runs on the same inputs), so that files cannot be compared with it; remove random numbers and state "
                "from forward, such as a dropout without training=self.training, or make them an input"
            )


def _warn_uninformative(first: list[tuple[str, Array]]) -> None:
    """Warn of outputs that are all zero or contain NaN, so that the comparison proves little."""
    for name, array in first:
        if array.dtype.kind != "f" or not array.size:
            continue
        found = "NaN in places" if np.isnan(array).any() else None if array.any() else "0 everywhere"
        if found is not None:
            warnings.warn(
                f"output {name!r} of the source model is {found} on the example inputs, so that the comparison "
                "proves little; pass other example_inputs",
                stacklevel=4,
            )


def full_provenance(model: object, provenance: Mapping[str, str] | None, opset: int, **versions: str) -> dict[str, str]:
    """Return the provenance of a model with the versions of the packages and the operator set."""
    return dict(provenance or {"source": type(model).__name__}) | versions | {"opset": str(opset)}
