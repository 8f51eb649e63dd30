"""Flat, named inputs and outputs of a model, from nested tuples, mappings and dataclasses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Final

from engine import ConfigError, ModelError
from tecoinfer_modelzoo.formatting import plural

INPUT, OUTPUT = "input", "output"
"""Default names of a single input and a single output."""

HERE: Final = "\0tensor"
"""Placeholder for a tensor; a string, which torch's tracer supports."""


@dataclass(frozen=True, slots=True)
class Example:
    """Example inputs of a model, in the structure of its arguments.

    ``args``, ``keywords``: the arguments; ``HERE`` marks an input, any other value is a constant. ``tensors``,
    ``names``: the inputs, in order. ``plain``: whether each argument is one tensor.
    """

    args: Sequence[Any]
    keywords: Mapping[str, Any]
    tensors: list[Any]
    names: list[str]
    plain: bool

    def call(self, model: Callable[..., Any], tensors: Sequence[Any]) -> Any:
        """Call a model with other tensors as inputs."""
        given = iter(tensors)

        def put(item: Any) -> Any:
            return next(given) if isinstance(item, str) and item == HERE else item

        args, keywords = _filled((list(self.args), dict(self.keywords)), put)
        return model(*args, **keywords)


def example(found: Any, kinds: tuple[type, ...], parameters: Sequence[str], names: Sequence[str] | None) -> Example:
    """Return the inputs among the arguments of a model.

    Args:
        found: a tensor, a sequence with an item per argument, or a mapping by argument name. Items may be nested.
        kinds: the classes of tensors. parameters: the names of the model's arguments, in order.
        names: of the inputs; ``None`` for the argument names, and ``input`` for a single tensor.

    Raises ConfigError: there is no tensor, or the names do not match.
    """
    keywords: Mapping[str, Any] = found if isinstance(found, Mapping) else {}
    args: Sequence[Any] = [found] if isinstance(found, kinds) else [] if keywords else list(found)
    known = [*parameters, *(f"{INPUT}_{n}" for n in range(len(parameters), len(args)))]
    paths = [
        (f"{key}{path}", tensor)
        for key, item in (*zip(known, args, strict=False), *keywords.items())
        for path, tensor in _inputs(item, kinds)
    ]
    if not paths:
        raise ConfigError("example_inputs contain no tensor; pass a tensor, one per argument, or a mapping by argument")
    default = [INPUT] if isinstance(found, kinds) else [path for path, _ in paths]
    chosen = _chosen("input_names", names, default)
    plain = not keywords and len(args) <= len(parameters) and all(isinstance(one, kinds) for one in args)
    args, keywords = _filled((list(args), dict(keywords)), lambda item: HERE if isinstance(item, kinds) else item)
    return Example(args, keywords, [tensor for _, tensor in paths], chosen, plain)


def _inputs(item: Any, kinds: tuple[type, ...]) -> Iterator[tuple[str, Any]]:
    if isinstance(item, kinds):
        yield "", item
    elif isinstance(item, (Mapping, list, tuple)):
        for key, one in _items(item):
            yield from ((f"_{key}{path}", tensor) for path, tensor in _inputs(one, kinds))


def _filled(item: Any, change: Callable[[Any], Any]) -> Any:
    """Return a nested item with ``change`` applied to each leaf."""
    if isinstance(item, Mapping):
        return {key: _filled(one, change) for key, one in item.items()}
    if isinstance(item, (list, tuple)):
        parts = [_filled(one, change) for one in item]
        return type(item)(*parts) if hasattr(item, "_fields") else type(item)(parts)
    return change(item)


def outputs(found: Any, kinds: tuple[type, ...]) -> list[tuple[str, Any]]:
    """Return the tensors that a model returns, with names made of their keys, fields and positions.

    ``None`` is left out. A single tensor is named ``output``, those of a tuple ``output_0``, ``output_1`` and so on.
    Raises ModelError if there is no tensor, or a value of another type.
    """
    leaves = list(_outputs(found, kinds, ()))
    if not leaves:
        raise ModelError("the source model returns no tensor; return the wanted tensors from forward")
    if len(leaves) == 1 and not any(isinstance(key, str) for key in leaves[0][0]):
        return [(OUTPUT, leaves[0][1])]
    return [(_called(path), tensor) for path, tensor in leaves]


def _called(path: Sequence[object]) -> str:
    words = [str(key) for key in path]
    return "_".join(words if path and isinstance(path[0], str) else [OUTPUT, *words])


def _outputs(found: Any, kinds: tuple[type, ...], path: tuple[object, ...]) -> Iterator[tuple[tuple[object, ...], Any]]:
    if isinstance(found, kinds):
        yield path, found
    elif isinstance(found, (Mapping, list, tuple)) or (is_dataclass(found) and not isinstance(found, type)):
        for key, one in _items(found):
            yield from _outputs(one, kinds, (*path, key))
    elif found is not None:
        cache = " (a cache: use_cache=False leaves it out)" if "Cache" in type(found).__name__ else ""
        raise ModelError(
            f"output {_called(path)!r} of the source model is not a tensor but of type {type(found).__name__}{cache}; "
            "let the model return tensors, or tuples, mappings or dataclasses of them"
        )


def _items(found: Any) -> list[tuple[Any, Any]]:
    """Return the items of a container with their keys, field names or positions from 0."""
    if isinstance(found, Mapping):
        return list(found.items())
    if isinstance(found, (list, tuple)):
        return list(zip(getattr(found, "_fields", range(len(found))), found, strict=True))
    return [(one.name, getattr(found, one.name)) for one in fields(found)]


def output_names(found: Sequence[str], names: Sequence[str] | None, inputs: Sequence[str]) -> list[str]:
    """Return the names of the outputs: ``names``, or ``found`` if ``None``.

    Raises ConfigError for a wrong number of names, a duplicate, or the name of an input.
    """
    chosen = _chosen("output_names", names, found)
    both = [name for name in chosen if name in inputs]
    if both:
        raise ConfigError(f"{both[0]!r} is the name of an input and of an output; pass others in output_names")
    return chosen


def _chosen(what: str, names: Sequence[str] | None, found: Sequence[str]) -> list[str]:
    chosen = list(found if names is None else names)
    if len(chosen) != len(found):
        kind = what.removesuffix("_names")
        fix = f"there are {plural(len(found), kind)}: {', '.join(found)}; name each"
        raise ConfigError(f"{what} {chosen} are {plural(len(chosen), 'name')}; {fix}")
    twice = next((name for name in chosen if chosen.count(name) > 1 or not name), None)
    if twice is not None:
        reason = "occurs twice" if twice else "is empty"
        raise ConfigError(f"{what} {chosen}: {twice!r} {reason}; names must be unique")
    return chosen
