"""What a model takes and gives, flat: tensors by name out of tuples, mappings, dataclasses and what nests in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Final

from engine import ConfigError, ModelError
from tecoinfer_modelzoo.formatting import plural

INPUT, OUTPUT = "input", "output"
"""What a single input and a single output are called where nobody says."""


HERE: Final = "\0tensor"
"""Stands for a tensor; a text, as torch's tracer knows what that is."""


@dataclass(frozen=True, slots=True)
class Example:
    """Example inputs of a model, in the structure that it is called with.

    Attributes:
        args, keywords: what the model is called with: ``HERE`` where an input goes, anything else is a constant.
        tensors: the inputs, in order. names: one per input.
        plain: whether the model takes just these tensors, one per argument.
    """

    args: Sequence[Any]
    keywords: Mapping[str, Any]
    tensors: list[Any]
    names: list[str]
    plain: bool

    def call(self, model: Callable[..., Any], tensors: Sequence[Any]) -> Any:
        """Call a model with other tensors in the places of the inputs."""
        given = iter(tensors)

        def put(item: Any) -> Any:
            return next(given) if isinstance(item, str) and item == HERE else item

        args, keywords = _filled((list(self.args), dict(self.keywords)), put)
        return model(*args, **keywords)


def example(found: Any, kinds: tuple[type, ...], parameters: Sequence[str], names: Sequence[str] | None) -> Example:
    """Return the inputs among what a model is called with.

    Args:
        found: a tensor; a sequence, one item per argument; or a mapping, by the name of the argument. Items may nest.
        kinds: the classes of tensors.
        parameters: the names of the model's arguments, in order.
        names: of the inputs; ``None`` for those of the arguments, and ``input`` for a single tensor.

    Raises:
        ConfigError: there is no tensor, or the names do not fit.
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
        raise ConfigError("example_inputs hold no tensor; give a tensor, one per argument, or a mapping by argument")
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
    """Return an item with everything in it changed that is no container."""
    if isinstance(item, Mapping):
        return {key: _filled(one, change) for key, one in item.items()}
    if isinstance(item, (list, tuple)):
        parts = [_filled(one, change) for one in item]
        return type(item)(*parts) if hasattr(item, "_fields") else type(item)(parts)
    return change(item)


def outputs(found: Any, kinds: tuple[type, ...]) -> list[tuple[str, Any]]:
    """Return what a model gives, tensor by tensor, each with a name out of the keys, fields and places it lies under.

    ``None`` is left out. A single tensor is called ``output``, those of a tuple ``output_0``, ``output_1`` and so on.

    Raises:
        ModelError: there is no tensor, or something that is none.
    """
    leaves = list(_outputs(found, kinds, ()))
    if not leaves:
        raise ModelError("the source model returns no tensor; let it return those that are wanted")
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
            f"output {_called(path)!r} of the source model is no tensor but of type {type(found).__name__}{cache}; "
            "let the model return tensors, or tuples, mappings or dataclasses of them"
        )


def _items(found: Any) -> list[tuple[Any, Any]]:
    """Return the parts of a container and their keys: a mapping's, the names of fields, or places from 0."""
    if isinstance(found, Mapping):
        return list(found.items())
    if isinstance(found, (list, tuple)):
        return list(zip(getattr(found, "_fields", range(len(found))), found, strict=True))
    return [(one.name, getattr(found, one.name)) for one in fields(found)]


def output_names(found: Sequence[str], names: Sequence[str] | None, inputs: Sequence[str]) -> list[str]:
    """Return the names of the outputs.

    Args:
        found: the names that the model's answer gives. names: those that are wanted; ``None`` for the former.
        inputs: the names of the inputs.

    Raises:
        ConfigError: the names do not fit the outputs or one another.
    """
    chosen = _chosen("output_names", names, found)
    both = [name for name in chosen if name in inputs]
    if both:
        raise ConfigError(f"{both[0]!r} is the name of an input and of an output; give others in output_names")
    return chosen


def _chosen(what: str, names: Sequence[str] | None, found: Sequence[str]) -> list[str]:
    chosen = list(found if names is None else names)
    if len(chosen) != len(found):
        kind = what.removesuffix("_names")
        raise ConfigError(
            f"{what} {chosen} are {plural(len(chosen), 'name')}; there are {plural(len(found), kind)}: "
            f"{', '.join(found)}; name each"
        )
    twice = next((name for name in chosen if chosen.count(name) > 1 or not name), None)
    if twice is not None:
        reason = "stands there twice" if twice else "is empty"
        raise ConfigError(f"{what} {chosen}: {twice!r} {reason}; give each its own name")
    return chosen
