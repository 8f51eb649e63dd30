"""Tasks in the old form: ``Task(name=..., load=..., ...)``, and ``dataclasses.replace(CLASSIFICATION, ...)``.

Functions of such a task take the model and the options as arguments. :func:`task_class` converts it to a class.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from utils.tasks.base import Calls, ExportSetting, Flag, Options, Task, Template, Writer, overrides
from utils.tasks.model import described

_Function: TypeAlias = "Callable[..., Any] | None"

_SAME = ("name", "domain", "flags", "models", "takes_nan", "template", "sample_data", "data_help", "advice")

ATTRIBUTES = {name: name for name in _SAME} | {
    "optional": "optional_models",
    "pictures": "image_inputs",
    "first": "domain_default",
    "choices": "export_settings",
    "stored_under": "metadata_key",
    "saves": "writes",
    "saves_folder": "writes_folder",
}
"""Fields -> attributes of :class:`~utils.tasks.base.Task`."""

METHODS: dict[str, tuple[str, Callable[[Callable[..., Any]], Callable[..., Any]]]] = {
    "load": ("load", lambda f: lambda self, paths: f(paths, self.options)),
    "typed": ("inline_samples", lambda f: lambda self: f(self.options)),
    "prepare": ("prepare", lambda f: lambda self, samples, **out: f(samples, self.model, self.options, **out)),
    "decode": ("decode", lambda f: lambda self, outputs, contexts: f(outputs, contexts, self.model, self.options)),
    "metric": ("metric", lambda f: lambda self, dataset: f(self.options, dataset, self.model)),
    "show": ("show", lambda f: lambda self, sample, answer: f(sample, answer, self.model, self.options)),
    "setup": ("setup", lambda f: lambda self, engines, dataset: f(engines, dataset, self.options)),
    "collate": ("collate", lambda f: lambda self, parts: f(parts, self.model)),
    "infer": ("infer", lambda f: lambda self, engines, arrays, contexts: f(engines, arrays, contexts, self.state)),
    "figures": ("extra_figures", lambda f: lambda self, timeline, samples: f(timeline, samples)),
    "amounts": ("workload", lambda f: lambda self, outputs, contexts: f(outputs, contexts)),
    "summary": ("summary", lambda f: lambda self, predictions: f(predictions, self.model, self.options)),
    "counted": ("warning_counts", lambda f: lambda self, contexts: f(contexts)),
    "remarks": ("format_warnings", lambda f: lambda self, counts, samples: f(counts, samples)),
    "input_size": ("input_size", lambda f: lambda self: f(self.options)),
    "open_sizes": ("open_sizes", lambda f: lambda self: f(self.options)),
    "check": ("check", lambda f: lambda self: f(self.options)),
    "answers": ("reference_answers", lambda f: lambda self, file, data: f(file, data, self.model, self.options)),
    "agreement": ("agreement", lambda f: lambda self, prediction, answer: f(prediction, answer)),
    "hinter": ("diagnostics", lambda f: lambda self: f(self.model, self.options)),
    "saver": ("prediction_writer", lambda f: lambda self, path, data: f(path, data, self.model, self.options)),
}
"""Fields of functions -> methods, and the adapter from function to method."""


@dataclass(frozen=True, eq=False, repr=False)
class LegacyTask:
    """A task as data and functions; :data:`ATTRIBUTES` and :data:`METHODS` list the replacements of its fields.

    ``watched`` has no effect any more. ``base`` is the class of which a task of the zoo is a view, with the values that
    ``replace`` does not change.
    """

    name: str
    domain: str
    load: _Function = None
    prepare: _Function = None
    decode: _Function = None
    metric: _Function = None
    show: _Function = None
    typed: _Function = None
    setup: _Function = None
    collate: _Function = None
    infer: _Function = None
    figures: _Function = None
    amounts: _Function = None
    summary: _Function = None
    counted: _Function = None
    remarks: _Function = None
    input_size: _Function = None
    open_sizes: _Function = None
    check: _Function = None
    flags: tuple[Flag, ...] = ()
    models: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    watched: bool = True
    takes_nan: bool = False
    pictures: bool = False
    template: Template | None = None
    first: bool = False
    sample_data: Path | None = None
    data_help: str = Task.data_help
    advice: Mapping[str, str] | None = None
    choices: tuple[ExportSetting, ...] = ()
    stored_under: str = ""
    answers: _Function = None
    agreement: _Function = None
    hinter: _Function = None
    saver: _Function = None
    saves: str = ""
    saves_folder: bool = False
    base: type[Task] | None = None

    def __post_init__(self) -> None:
        if self.base is None:
            for missing in ("load", "prepare", "decode", "metric", "show"):
                if getattr(self, missing) is None:
                    raise TypeError(f"Task {self.name!r} is missing {missing!r}; derive a class from Task instead")

    @classmethod
    def view(cls, base: type[Task]) -> LegacyTask:
        """Return a task of the zoo in the old form."""
        found: dict[str, Any] = {old: getattr(base, new) for old, new in ATTRIBUTES.items()}
        found |= {old: partial(_call, base, old) for old, (new, _) in METHODS.items() if overrides(base, new)}
        return cls(**found, base=base)

    def as_class(self) -> type[Task]:
        """Return the class of this task, always the same one; of an unchanged view its base."""
        made: type[Task] | None = self.__dict__.get("_class")
        if made is None:
            made = _made(self)
            object.__setattr__(self, "_class", made)
        return made

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the class, which is created again."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        for name, value in state.items():
            object.__setattr__(self, name, value)


Task.register(LegacyTask)


def is_task(value: object) -> bool:
    """Return whether a value is a task in any form; false for an abstract class."""
    if isinstance(value, type):
        return issubclass(value, Task) and value is not Task and not getattr(value, "__abstractmethods__", None)
    return isinstance(value, LegacyTask)


def one_call(engines: Mapping[str, Any], arrays: Any, contexts: Any, state: Any) -> Any:
    """Infer by one call of the only model, like a task without ``infer``."""
    return Calls.infer(None, engines, arrays, contexts)  # type: ignore[arg-type]


def _call(base: type[Task], old: str, *given: Any, **named: Any) -> Any:
    """Call a function of a view: the method of a new object, bound to the given options, model and state."""
    order = {
        "load": "po", "typed": "o", "prepare": "smo", "decode": "aamo", "metric": "odm", "show": "samo",
        "setup": "edo", "collate": "pm", "infer": "easS", "figures": "ts", "amounts": "aa", "summary": "pmo",
        "counted": "c", "remarks": "cn", "input_size": "o", "open_sizes": "o", "check": "o", "answers": "fdmo",
        "agreement": "pa", "hinter": "mo", "saver": "pdmo",
    }[old]  # fmt: skip
    parts = dict(zip(order, given, strict=False))
    task = base(parts["o"] if "o" in parts else Options(**{flag.key: flag.default for flag in base.flags}))
    if "m" in parts:
        task.bind(parts["m"])
    elif parts.get("e"):
        task.bind(described(parts["e"]))
    if "S" in order:
        task.state = given[-1]
    kept = [value for key, value in zip(order, given, strict=False) if key not in "omS"]
    return getattr(task, METHODS[old][0])(*kept, **named)


def _made(task: LegacyTask) -> type[Task]:
    """Create the class: attributes and methods that differ from the base, or from the defaults, are replaced."""
    base: Any = task.base or Task
    given = LegacyTask.view(task.base) if task.base else None
    if given is not None and all(_same(getattr(task, old), getattr(given, old)) for old in (*ATTRIBUTES, *METHODS)):
        return base  # type: ignore[no-any-return]
    body: dict[str, Any] = {"old": task, "__module__": __name__, "__doc__": f"Task {task.name}."}
    for old, new in ATTRIBUTES.items():
        value = getattr(task, old)
        if given is None or value != getattr(given, old):
            body[new] = {} if value is None and new == "advice" else value
    replaced = {}
    for old, (new, method) in METHODS.items():
        function = getattr(task, old)
        function = None if function is one_call else function
        if _same(function, given and getattr(given, old)):
            continue
        if function is None:  # removed by `replace`
            body[new] = getattr(Task, new)
        else:
            body[new], replaced[new] = method(function), function
    if "prediction_writer" in replaced and not task.saves:
        body["writes"] = "the answers"
    elif task.saver is None:
        body["writes"] = Writer.writes
    return type(task.name, (_Adapted, base), {**body, "functions": replaced})


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, partial) and isinstance(other, partial):
        return (one.func, one.args) == (other.func, other.args)
    return bool(one == other)


class _Adapted:
    """Base of classes created from a task in the old form."""

    old: LegacyTask
    functions: Mapping[str, Callable[..., Any]]

    @classmethod
    def sources(cls) -> list[Any]:
        """Return the functions with the code of the task, and its base classes."""
        base = cls.old.base
        return [*cls.functions.values(), *(base.sources() if base else [])]

    def source(self, method: str) -> Callable[..., Any]:
        """Return the function to name in an error about a method's return value."""
        found: Callable[..., Any] = self.functions.get(method) or getattr(self, method)
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the task in the old form."""
        return _again, (self.old, self.__getstate__())


def _again(old: LegacyTask, state: Mapping[str, Any]) -> Task:
    made = old.as_class()
    task: Task = made.__new__(made)
    vars(task).update(state)
    return task
