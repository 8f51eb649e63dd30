"""Data: those of ``--data``, or random inputs; a preview of five samples with their targets."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine import ConfigError, TecoInferError
from tecoinfer_modelzoo.formatting import plural
from toolkit.adapt.datasets import copied, first_flags, shown_places
from toolkit.adapt.preview import drawn
from toolkit.adapt.running import loaded, model_file, task_of, why_unfit
from toolkit.adapt.stage import Stage
from toolkit.adapt.work import Outcome, Work, content_of
from utils.datasets.base import Dataset
from utils.fetch import fetched_path, find_package, is_fetched_path
from utils.stored import ModelMetadata
from utils.tasks.base import Task

PREVIEW = "preview.png"


class TakeData(Stage):
    """Load the data with the task, copy them if they are small, and draw five samples."""

    name, title, needs = "data", "data", ("export", "task")

    def inputs(self, work: Work) -> Mapping[str, Any]:
        """The data and the flags."""
        own = work.request.part("data", "defaults", "samples", "dims", "batch", "data_source")
        return own | {"content": content_of(work.request.data)}

    def run(self, work: Work) -> Outcome:
        """Return the place, the flags and the paths of the scripts. Raises ConfigError if the data do not fit."""
        task = task_of(work)
        flags = first_flags(work, task)
        dataset, facts, line = _loaded(work, task, flags)
        preview = work.folder / PREVIEW
        lines = drawn(dataset, preview, _labels(work))
        facts |= {"preview": lines, "samples": len(dataset), "flags": facts["flags"]}
        return Outcome(line, facts, [preview] if lines else [], notes=lines)


def _loaded(work: Work, task: type[Task], flags: dict[str, Any]) -> tuple[Dataset, dict[str, Any], str]:
    """Return the samples, the facts and a line; an error on the data names the tasks that were guessed too."""
    if not work.request.data:
        return _random(work, task, flags)
    try:
        return _given(work, task, flags)
    except ConfigError as error:
        others = [str(one["task"]) for one in work.facts("task")["others"]]
        hint = f"; or give --task {' or '.join(others)}" if others and not work.request.task else ""
        raise ConfigError(f"{error}{hint}") from error


def _labels(work: Work) -> list[str]:
    from engine.onnx import load_model, metadata

    return ModelMetadata(metadata(load_model(model_file(work)))).labels or []


def _random(work: Work, task: type[Task], flags: dict[str, Any]) -> tuple[Dataset, dict[str, Any], str]:
    """Return random samples, on which the targets compute what target ``onnx`` computes, or not."""
    sizes = work.facts("export")["sizes"]
    flags = {"random": work.request.samples, **flags}
    if sizes and "dim" not in flags:
        flags["dim"] = [f"{name}={size}" for name, size in sizes.items()]
    dataset = loaded(task, model_file(work), None, flags)
    facts = {"place": "", "single": "", "multi": "", "flags": flags, "copied": 0, "licence": "", "real": False}
    line = f"{len(dataset)} random samples: a functional case, whose metric says nothing about the model"
    return dataset, facts, line


def _given(work: Work, task: type[Task], flags: dict[str, Any]) -> tuple[Dataset, dict[str, Any], str]:
    data, ckpt = work.request.data, model_file(work)
    licence = work.request.data_source
    if is_fetched_path(data):
        package = find_package(data.removeprefix("fetch:").partition("/")[0])
        source, licence = fetched_path(data), licence or f"{package.what}; licence: {package.licence}"
    else:
        source = Path(data)
    if not source.exists():
        raise ConfigError(f"--data {data} does not exist; check the path")

    def load(path: Path) -> Dataset:
        return loaded(task, ckpt, path, flags)

    dataset = _fitting(load, source, data, task)
    size = 0
    place = data
    if not is_fetched_path(data):
        place, size = copied(source, work.folder, load)
    here = source if is_fetched_path(data) else work.folder / place
    flags |= _dims(task, ckpt, here, flags, work.request.batch)
    dataset = _fitting(load, here, data, task)
    single, multi = shown_places(dataset, place, work.folder)
    if not is_fetched_path(place):  # a sample may be a pair of images, of two folders
        single = single if _opens(task, ckpt, work.folder / single, flags, "single") else place
        multi = multi if _opens(task, ckpt, work.folder / multi, flags, "multi") else place
    facts = {
        "place": place,
        "single": single,
        "multi": multi,
        "flags": flags,
        "copied": 0 if place.startswith(("fetch:", "/")) else size,
        "licence": licence,
        "real": True,
    }
    where = "fetched at run time" if is_fetched_path(data) else "copied" if facts["copied"] else "too large to copy"
    return dataset, facts, f"{plural(len(dataset), 'sample')} of {data}, read by task {task.name}; {where}"


def _opens(task: type[Task], ckpt: Path, path: Path, flags: Mapping[str, Any], script: str) -> bool:
    """Return whether a script of the folder can load a path."""
    try:
        return len(loaded(task, ckpt, path, flags, script)) > 0
    except TecoInferError:
        return False


def _fitting(load: Any, path: Path, data: str, task: type[Task]) -> Dataset:
    """Load data, of which a sample has to have a target. Raises ConfigError if they do not fit the task."""
    try:
        dataset: Dataset = load(path)
    except TecoInferError as error:
        raise ConfigError(f"--data {data} does not fit task {task.name}: {why_unfit(error)}") from error
    if not len(dataset):
        raise ConfigError(f"--data {data} has no samples for task {task.name}, which reads: {task.data_help}")
    if dataset.batch(range(1)).targets is None:
        raise ConfigError(f"--data {data} has no targets for task {task.name}, which reads: {task.data_help}")
    return dataset


def _dims(task: type[Task], ckpt: Path, data: Path, flags: Mapping[str, Any], batch: int) -> dict[str, Any]:
    """Return ``--dim`` with the sizes of the data, for a task that has no flag for them; empty if none is open."""
    from toolkit.fix.opening import SampleRequest, open_samples
    from toolkit.fix.task_request import TaskRequest
    from toolkit.graph.nodes import load_named

    if task.name != "arrays" or "dim" in flags:
        return {}
    words = [word for key, value in flags.items() for word in (f"--{key}", *_words(value))]
    wanted = SampleRequest([str(data)], batch, None, {}, {}, TaskRequest(task, words))
    with open_samples(ckpt, load_named(ckpt), wanted) as samples:
        found, specs = samples.sizes(), samples.specs
    dims = dict(found.dims)
    for spec, shape in zip(specs, found.shapes, strict=True):
        for axis, (symbol, size) in enumerate(zip(spec.symbols, shape, strict=False)):
            if symbol is not None and size is not None and axis != spec.batch_axis:
                dims.setdefault(symbol, (size,))
    return {"dim": [f"{name}={','.join(map(str, sizes))}" for name, sizes in dims.items()]} if dims else {}


def _words(value: Any) -> list[str]:
    return [str(one) for one in (value if isinstance(value, (list, tuple)) else [value])]
