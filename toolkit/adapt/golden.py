"""Answers of the source framework (``--golden``): whether the model gives them, or what explains the difference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine import Array, ConfigError, TecoInferError
from tecoinfer_modelzoo.text import shape_text
from toolkit.adapt.running import data_words, model_file, task_of, task_request
from toolkit.adapt.work import Work
from toolkit.fix.choices import leaves_decoding_out
from utils.arrays import read_npz

CLOSE = 0.01
"""Largest relative difference of arrays of the model and of the source framework that counts as the same."""


@dataclass(frozen=True)
class Explained:
    """Result: ``flags`` that the scripts get, by key; one ``line``; whether the source's answers are reached; the
    ``cause`` of a difference that no flag corrects, empty if unknown."""

    line: str
    flags: dict[str, Any] = field(default_factory=dict)
    reached: bool = True
    cause: str = ""


def explained(work: Work, golden: Path) -> Explained:
    """Compare the model with the answers of the source, and search for settings that explain a difference.

    ``golden``: an ``.npz`` of the outputs (or of the prepared inputs) by name with a row per sample, or a file or
    folder of answers as the task reads them.

    Raises ConfigError if they do not fit the data, or the task cannot read them.
    """
    if not golden.exists():
        raise ConfigError(f"--golden {golden} does not exist; check the path")
    arrays = _arrays(work, golden) if golden.suffix == ".npz" else None
    try:
        settings = task_of(work).export_settings
        if settings:
            found = _by_settings(work, golden)
            if found.reached or arrays is None or not leaves_decoding_out(settings) or _has_inputs(work, golden):
                return found
            other = _by_changes(work, golden, arrays)
            return other if other.cause else found
        if arrays is None:
            raise ConfigError(
                f"task {task_of(work).name} compares arrays; write the outputs of the source into an .npz by name"
            )
        return _by_changes(work, golden, arrays)
    except TecoInferError as error:
        text = str(error)
        raise ConfigError(text if text.startswith("--golden") else f"--golden {golden}: {text}") from error


def _arrays(work: Work, golden: Path) -> list[Array]:
    """Return the arrays, those of outputs in the model's order. Raises ConfigError if they do not fit model or data."""
    found, export, samples = read_npz(golden), work.facts("export"), int(work.facts("data")["samples"])
    inputs, outputs = ([str(one["name"]) for one in export[side]] for side in ("inputs", "outputs"))
    fix = "write it from the same samples, in the same order"
    for name, array in found.items():
        rows = array.shape[0] if array.ndim else 0
        if rows != samples:
            raise ConfigError(f"--golden {golden}: {name!r} has {rows} rows, and --data {samples} samples; {fix}")
    if set(inputs) <= set(found):
        return [found[name] for name in inputs]
    names = outputs if set(outputs) <= set(found) else list(found)
    if len(names) != len(outputs):
        raise ConfigError(
            f"--golden {golden} has the arrays {', '.join(found) or 'none'}; the model's outputs are "
            f"{', '.join(outputs)}: write one array for each, by name"
        )
    for name, output in zip(names, export["outputs"], strict=True):
        sizes, own = found[name].shape[1:], output["shape"][1:]
        same = len(sizes) == len(own)
        if not same or any(isinstance(size, int) and size != n for n, size in zip(sizes, own, strict=True)):
            raise ConfigError(
                f"--golden {golden}: {name!r} has rows of shape {shape_text(sizes)}, and output {output['name']!r} of "
                f"the model {shape_text(own)}; {fix}"
            )
    return [found[name] for name in names]


def _has_inputs(work: Work, golden: Path) -> bool:
    """Return whether an ``.npz`` has the model's inputs, not its outputs."""
    return {str(one["name"]) for one in work.facts("export")["inputs"]} <= set(read_npz(golden))


def _by_settings(work: Work, golden: Path) -> Explained:
    """Try the settings of the task's preprocessing and decoding."""
    from toolkit.fix.choices import Questions, as_flags, explain
    from toolkit.fix.opening import SampleRequest

    asked, dims = task_request(work)
    wanted = SampleRequest(data_words(work), work.request.batch, None, {}, dims, asked)
    report, done = explain(model_file(work), Questions(golden, None), wanted)
    values = dict(report.data["found"])
    if not done:
        return Explained(f"no setting explains {golden.name}: {report.lead}", reached=False)
    if not values:
        return Explained(f"the answers are those of {golden.name}")
    tried = f"{report.facts['trials']} trials"
    return Explained(f"{golden.name} is explained by {as_flags(values)} ({tried})", values)


def _by_changes(work: Work, golden: Path, arrays: Sequence[Array]) -> Explained:
    """Try known mistakes on the arrays of a task without settings; a change that explains is reported, not entered."""
    from toolkit.fix.opening import SampleRequest, open_samples
    from toolkit.fix.suspects import UNCHANGED, try_suspects
    from toolkit.graph.nodes import load_named

    if _has_inputs(work, golden):
        raise ConfigError("it has the model's inputs, and this task takes arrays as they are; write the outputs")
    asked, _ = task_request(work)  # without the sizes of --dim, as changes of the layout have others
    file = model_file(work)
    wanted = SampleRequest(data_words(work), work.request.batch, None, {}, {}, asked)
    with open_samples(file, load_named(file), wanted) as samples:
        next(iter(samples))  # counts those that can be prepared
        tried = try_suspects(file, samples, samples.measure("close"), 1.0, golden=arrays, tolerance=CLOSE)
    cured = [one.name for one in tried if one.cured]
    if UNCHANGED in cured:
        return Explained(f"the outputs are those of {golden.name}")
    if cured:
        words = ", or ".join(cured)
        line = f"{golden.name} is explained by: {words}; correct the data or the model"
        return Explained(line, reached=False, cause=words)
    best = next((one for one in tried if one.metric == one.metric), None)
    near = f", of {len(tried)} tried the nearest: {best.name} (close {best.metric:.4g})" if best else ""
    return Explained(f"nothing explains {golden.name}{near}", reached=False)
