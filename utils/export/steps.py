"""The steps of an export that are the same for every framework: run the source model, trace it, check, write."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
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
"""How far two runs on the same inputs may differ: sums in another order do, random numbers differ more."""


class Trainable(Protocol):
    """What modules and layers of the frameworks have in common."""

    training: bool
    forward: Callable[..., Any]

    def eval(self) -> object:
        """Let it compute as in inference."""

    def train(self) -> object:
        """Let it compute as in training."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a framework traces.

    Attributes:
        example: the example inputs. names: of the outputs.
        tried: arrays per case, one per input; the first are the example's.
        axes: per input, its dynamic axes and their names.
        flat: whether the model must be made one that takes a tensor per argument and returns a tuple of tensors.
        forms: those that are asked for.
    """

    example: Example
    names: list[str]
    tried: list[list[Array]]
    axes: list[dict[int, str]]
    flat: bool
    forms: tuple[str, ...]

    def graphs(self, static: Callable[[], ModelProto], free: Callable[[], ModelProto]) -> Traced:
        """Make the static and the dynamic graph, each where a form that is asked for is made of it."""
        made = attempt(static) if STATIC in self.forms else None
        return made, attempt(free) if {DYNAMIC, HALF} & {*self.forms} else None


class Framework(NamedTuple):
    """What a framework does with a model.

    Attributes:
        kind: the class of its modules. tensor: that of its tensors. kinds: the classes that example inputs may have.
        parts: a module and all modules in it.
        to_array, to_tensor: one tensor and one array, the other way round.
        run: runs a model without gradients.
        trace: its static and its dynamic graph, or why there is none; ``None`` where it is not asked for.
        reason: what an error of the framework says, in one line.
    """

    kind: type
    tensor: type
    kinds: tuple[type, ...]
    parts: Callable[[Any], Iterable[Trainable]]
    to_array: Callable[[Any], Array]
    to_tensor: Callable[[Array], Any]
    run: Callable[[Callable[[], Any]], Any]
    trace: Callable[[Plan], Traced]
    reason: Callable[[BaseException], str]


class Wanted(NamedTuple):
    """What an export shall make: names (``None`` for the model's own), dynamic axes, notes, forms, tolerances."""

    input_names: Sequence[str] | None
    output_names: Sequence[str] | None
    dynamic: Mapping[str, Mapping[int, str]] | None
    notes: ModelNotes
    forms: tuple[str, ...]
    tolerances: Mapping[str, float]


def write_exported(
    model: Any, framework: Framework, example_inputs: Any, stem: Path, wanted: Wanted
) -> list[ExportResult]:
    """Run and trace a model in eval mode, then write the files that pass.

    Args:
        model: the source. framework: how it is run and traced.
        example_inputs: what it is called with.
        stem: path and start of the file names.
        wanted: what shall be made.

    Raises:
        ConfigError: a name, an axis or the model itself cannot be used.
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
        _warn_of_nothing(first)
        answers = [first, *(_run(model, framework, given, inputs, changed=True)[0] for inputs in tried[1:])]
        cases = [Expected(inputs, [array for _, array in one]) for inputs, one in zip(tried, answers, strict=True)]
        static, free = framework.trace(Plan(given, names, tried, axes, not (plain and given.plain), wanted.forms))
    if free is not None and not isinstance(free, ModelError):
        free = check_dynamic(free, axes)
    refused = [one for one in (static, free) if isinstance(one, ModelError)]
    if len(refused) == sum(one is not None for one in (static, free)):
        raise refused[0]
    return write_onnx_files(stem, variants_of(static, free, cases, wanted.forms), wanted.notes, wanted.tolerances)


def attempt(make: Callable[[], ModelProto]) -> Made:
    """Return a graph, or why it cannot be made."""
    try:
        return make()
    except ModelError as error:
        return error


def _parameters(model: Trainable) -> list[str]:
    """Return the names of the arguments of a module's ``forward``; none where it does not tell."""
    try:
        found = inspect.signature(model.forward).parameters.values()
    except (TypeError, ValueError):
        return []
    return [one.name for one in found if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]


@contextmanager
def _evaluated(model: Trainable, parts: Iterable[Trainable]) -> Iterator[None]:
    """Put a model in eval mode for a while; each module gets its own mode back."""
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
    """Return the source model's outputs by name, and whether it returns just them: a tensor, or a tuple of several.

    Args:
        changed: whether the sizes are others than the example's.

    Raises:
        ModelError: it cannot run inputs of these shapes, or returns something else than tensors.
    """
    tensors = [framework.to_tensor(x) for x in arrays]
    try:
        found = framework.run(lambda: given.call(model, tensors))
    except Exception as error:  # a model's own code may raise anything
        shapes = [list(x.shape) for x in arrays]
        fix = "leave the axis out of dynamic" if changed else "give example_inputs that the model takes"
        raise ModelError(
            f"the source model cannot run inputs of shapes {shapes}: {framework.reason(error)}; {fix}"
        ) from error
    answers = outputs(found, (framework.tensor,))
    named = [(name, _array(framework, f"output {name!r} of the source model", one)) for name, one in answers]
    parts = found if isinstance(found, (tuple, list)) else [found]
    own = len({id(one) for one in (*parts, *tensors)}) == len(parts) + len(tensors)
    return named, own and all(isinstance(one, framework.tensor) for one in parts)


def _array(framework: Framework, what: str, tensor: Any) -> Array:
    """Return a tensor as an array that a file can take or give."""
    try:
        array = framework.to_array(tensor)
    except (TypeError, RuntimeError, ValueError) as error:
        reason = first_line(error).rstrip(".")
    else:
        if array.dtype.kind in "fiub":
            return array
        reason = f"it is {array.dtype}"
    raise ModelError(
        f"{what} cannot be one of a file: {reason}; let it be a dense tensor of float32 (model.float()), float16, "
        "integers or bool"
    )


def _check_repeats(
    model: Any, framework: Framework, given: Example, arrays: Sequence[Array], first: list[tuple[str, Array]]
) -> None:
    """Raise where the source model answers the same inputs otherwise the second time."""
    again, _ = _run(model, framework, given, arrays, changed=False)
    for (name, a), (_, b) in zip(first, again, strict=True):
        error = relative_error([a], [b])
        if error > _REPEATS:
            raise ModelError(
                f"output {name!r} of the source model is another one each time (relative error {error:.1e} between two "
                "runs on the same inputs), so no file can be compared with it; take random numbers and state out "
                "of forward, such as a dropout without training=self.training, or make them an input"
            )


def _warn_of_nothing(first: list[tuple[str, Array]]) -> None:
    """Warn of outputs with which every file agrees, whatever it computes."""
    for name, array in first:
        if array.dtype.kind != "f" or not array.size:
            continue
        found = "NaN in places" if np.isnan(array).any() else None if array.any() else "0 everywhere"
        if found is not None:
            warnings.warn(
                f"output {name!r} of the source model is {found} on the example inputs: that says little of the files; "
                "give others",
                stacklevel=4,
            )


def told(model: object, provenance: Mapping[str, str] | None, opset: int, **versions: str) -> dict[str, str]:
    """Return where a model comes from, and by which versions it was exported."""
    return dict(provenance or {"source": type(model).__name__}) | versions | {"opset": str(opset)}
