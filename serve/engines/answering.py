"""Answers to samples by the model's task: what ``example_single_batch.py`` prints for a file."""

from __future__ import annotations

import base64
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from engine import Array, ConfigError, DataError, Timeline
from serve.engines.opened import Opened
from serve.errors import ServeError
from utils.datasets.base import Batch, Dataset
from utils.pipeline.answers import NO_ANSWER
from utils.pipeline.run.nan import Flaws
from utils.pipeline.run.pipeline import PreparedBatch, prepare, returned
from utils.tasks.base import Rendering
from utils.tasks.prepared import NoAnswer

MEDIA = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".txt": "text/plain; charset=utf-8",
    ".wav": "audio/wav",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".html": "text/plain; charset=utf-8",
}
"""Media types of rendered answers by file ending; HTML is shown as text."""


@dataclass
class Body:
    """A body to answer.

    Attributes:
        content: the bytes. ending: of the file that they would be, such as ``.jpg``.
        rendered: whether the answers are to be drawn as well.
    """

    content: bytes
    ending: str
    rendered: bool = False


@dataclass
class _Sample:
    """A sample on its way: its batch of one, and what is known of it so far."""

    name: str
    ready: PreparedBatch | None = None
    failure: str = ""
    is_unreadable: bool = False
    outputs: list[Array] | None = None
    entry: dict[str, Any] = field(default_factory=dict)


class Answering:
    """Answers bodies with the task of an open model; ``most``: most samples of a body."""

    def __init__(self, opened: Opened, most: int) -> None:
        if opened.pipeline is None:
            raise ConfigError(f"{opened.source.name} is a file without a task; it takes tensors only")
        self._opened, self._pipeline, self._most = opened, opened.pipeline, most
        self._task = opened.pipeline.task

    def answers(self, bodies: Sequence[Body]) -> list[dict[str, Any] | ServeError]:
        """Return for each body its answers and timing in JSON types, or its error."""
        return self._of_rows(bodies) if self._opened.answers_by_rows else [self._guarded(body) for body in bodies]

    def _guarded(self, body: Body) -> dict[str, Any] | ServeError:
        with TemporaryDirectory(prefix="teco_serve_") as folder:
            try:
                return self._answered(body, Path(folder))
            except (DataError, ConfigError) as error:
                return ServeError("invalid", _without(str(error), folder))

    def _answered(self, body: Body, folder: Path) -> dict[str, Any]:
        """Answer a body by the calls that its task makes."""
        start = time.perf_counter()
        samples = self._prepared(body, folder)
        prepared = time.perf_counter()
        for sample in samples:
            if sample.ready is not None:
                self._infer(sample, sample.ready)
        inferred = time.perf_counter()
        found = [self._finished(sample, folder, body.rendered) for sample in samples]
        return _reply(found, start, prepared, inferred, time.perf_counter())

    def _infer(self, sample: _Sample, ready: PreparedBatch) -> None:
        inferred = self._pipeline.infer(ready.arrays, ready.contexts, 1)
        self._decode(sample, ready, inferred.outputs, inferred.flaws)

    def _of_rows(self, bodies: Sequence[Body]) -> list[dict[str, Any] | ServeError]:
        """Answer bodies whose samples are rows of one call of the engine, all of them in as few calls as possible."""
        start = time.perf_counter()
        with TemporaryDirectory(prefix="teco_serve_") as top:
            taken: list[list[_Sample] | ServeError] = []
            for place, body in enumerate(bodies):
                folder = Path(top) / str(place)
                folder.mkdir()
                try:
                    taken.append(self._prepared(body, folder))
                except (DataError, ConfigError) as error:
                    taken.append(ServeError("invalid", _without(str(error), str(folder))))
            prepared = time.perf_counter()
            self._compute([sample for some in taken if not isinstance(some, ServeError) for sample in some])
            inferred = time.perf_counter()
            found: list[dict[str, Any] | ServeError] = []
            for place, (body, some) in enumerate(zip(bodies, taken, strict=True)):
                if isinstance(some, ServeError):
                    found.append(some)
                    continue
                folder = Path(top) / str(place)
                entries = [self._finished(sample, folder, body.rendered) for sample in some]
                found.append(_reply(entries, start, prepared, inferred, time.perf_counter()))
        return found

    def _compute(self, samples: Sequence[_Sample]) -> None:
        """Compute the rows of all samples, those of equal shapes together, and decode them one by one."""
        (network,) = self._opened.networks.values()  # a task of one call has one
        joined = network.joined
        groups: dict[Any, list[tuple[_Sample, PreparedBatch, list[Array]]]] = {}
        for sample in samples:
            ready = sample.ready
            if ready is None or ready.arrays is None:
                continue
            arrays: list[Array] = [*ready.arrays]  # no shards: these come from a `collate` of the task
            key = tuple((array.shape, array.dtype.str) for array in arrays) if not network.reason else object()
            groups.setdefault(key, []).append((sample, ready, arrays))
        for key, group in groups.items():
            for begin in range(0, len(group), joined.most):
                some = group[begin : begin + joined.most]
                parts = [network.checked(arrays) for _, _, arrays in some]
                for (sample, ready, _), outputs in zip(some, joined(key, parts), strict=True):
                    flaws = Flaws.none(1)
                    flaws.add(outputs, [spec.batch_axis for spec in joined.outputs])
                    self._decode(sample, ready, outputs[0] if len(outputs) == 1 else outputs, flaws)

    def _prepared(self, body: Body, folder: Path) -> list[_Sample]:
        """Write a body to a file, load it as the task loads data, and prepare its samples one by one."""
        dataset = self._loaded(body, folder)
        if len(dataset) > self._most:
            raise DataError(f"the body has more than {self._most} samples; send fewer, or raise --max_samples")
        if not len(dataset):
            raise DataError("the body holds no samples")
        found = []
        for place in range(len(dataset)):
            batch: Batch = dataset.batch(range(place, place + 1))
            ready = prepare(batch, self._pipeline.preprocessor, Timeline(), detailed=False)
            sample = _Sample(
                batch.names[0].replace(str(folder), "").lstrip("/"), ready if ready.arrays is not None else None
            )
            if ready.failures:
                sample.failure, sample.is_unreadable = _without(ready.failures[0].text, str(folder)), True
            if ready.nan_inputs:
                sample.entry["nan_input"] = True
            found.append(sample)
        if all(sample.is_unreadable for sample in found):
            raise DataError(found[0].failure)
        return found

    def _loaded(self, body: Body, folder: Path) -> Dataset:
        task = self._task
        if body.ending == ".txt" and any(flag.key == "text" for flag in task.flags):
            return self._inline(body)
        file = folder / f"sample{body.ending}"
        file.write_bytes(body.content)
        rows, task.options.batch_size = task.options.batch_size, self._most + 1  # `single` loads the first batch
        try:
            found: Dataset = returned(task.load({"data": file}), Dataset, task.source("load"), task.name)
        finally:
            task.options.batch_size = rows
        if found.rejected and not len(found):
            raise DataError(f"the body {found.rejected[0].reason}")
        return found

    def _inline(self, body: Body) -> Dataset:
        """Return a text as the sample of ``--text``."""
        try:
            text = body.content.decode()
        except UnicodeDecodeError as error:
            raise DataError("the text is not UTF-8; encode it") from error
        options = self._task.options
        before, options.text = options.text, [text]
        try:
            found = self._task.inline_samples()
        finally:
            options.text = before
        if found is None:
            raise DataError(f"task {self._task.name} takes no single text; send a file that it loads")
        return found

    def _decode(self, sample: _Sample, ready: PreparedBatch, outputs: Any, flaws: Flaws) -> None:
        predictions = self._pipeline.predictions(outputs, ready.contexts, 1)
        (prediction,) = predictions
        if isinstance(prediction, NoAnswer):
            sample.failure = prediction.reason
            return
        if bool(flaws.lost(predictions)[0]):
            sample.entry |= {"nan_output": True}
            sample.failure = NO_ANSWER
            return
        task = self._task
        shown = returned(task.show(ready.batch.samples[0], prediction), Rendering, task.source("show"), task.name)
        sample.entry |= {"answer": shown.answer, "text": shown.text, "rendering": shown}

    def _finished(self, sample: _Sample, folder: Path, rendered: bool) -> dict[str, Any]:
        """Return the entry of a sample: its answer, or why it has none."""
        shown: Rendering | None = sample.entry.pop("rendering", None)
        entry: dict[str, Any] = {"name": sample.name, **sample.entry}
        if sample.failure:
            return {**entry, "answer": None, "error": sample.failure}
        if rendered and shown is not None and shown.save is not None:
            entry["rendering"] = _file_of(shown, folder)
        plain: dict[str, Any] = _plain(entry, str(folder))
        return plain


def _file_of(shown: Rendering, folder: Path) -> dict[str, str]:
    """Return a rendered answer as media type and base64."""
    assert shown.save is not None  # noqa: S101 -- checked by the caller
    target = folder / "rendered"
    target.mkdir(exist_ok=True)
    file = shown.save(target)
    media = MEDIA.get(file.suffix.lower(), "application/octet-stream")
    return {"media_type": media, "base64": base64.b64encode(file.read_bytes()).decode()}


def _reply(entries: list[dict[str, Any]], *times: float) -> dict[str, Any]:
    """Return the reply to a body; ``times``: start, and ends of preparation, inference and decoding (seconds)."""
    start, prepared, inferred, end = times
    timing = {"prepare_s": prepared - start, "infer_s": inferred - prepared, "decode_s": end - inferred}
    return {"answers": entries, "timing": {name: round(value, 6) for name, value in timing.items()}}


def _without(text: str, folder: str) -> str:
    """Return a message without the path of the temporary file, which means nothing to a client."""
    return text.replace(f"{folder}/", "").replace(folder, "")


def _plain(value: Any, folder: str) -> Any:
    """Return plain data for JSON: without NumPy's types, and without paths of temporary files."""
    if isinstance(value, dict):
        return {str(key): _plain(one, folder) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one, folder) for one in value]
    if isinstance(value, str):
        return _without(value, folder)
    if isinstance(value, Path):
        return _without(str(value), folder)
    return value.item() if hasattr(value, "item") and getattr(value, "ndim", 1) == 0 else value
