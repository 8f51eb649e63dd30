"""Open the data set and the engines of a run, and bind its task to the model."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from engine import ConfigError, DataError, Engine, EngineSpec, find_pass, open_engine
from utils.datasets.base import Dataset
from utils.datasets.sharding import rank_and_size
from utils.pipeline.flags.frames import frame_source
from utils.pipeline.flags.named_values import dims_of
from utils.pipeline.run.pipeline import returned
from utils.shapes import parse_shapes
from utils.stuck import report_slow_opening
from utils.tasks.base import Task
from utils.tasks.model import described as described


def load_data(task: Task) -> Dataset:
    """Load the data set of the task's options.

    Raises ConfigError if a data path is missing, DataError if a file of the data set cannot be opened.
    """
    options = task.options
    inline = task.inline_samples()
    if inline is not None:
        options.data_path = None
        return inline
    source = frame_source(options)
    if source is not None:
        from utils.pipeline.frames import load_frames

        return load_frames(task, source)
    try:
        found: Dataset = returned(task.load(options.paths), Dataset, task.source("load"), task.name)
        return found
    except OSError as error:
        what = error.filename if error.filename is not None else options.data_text
        raise DataError(f"{what}: cannot be read ({error.strerror or error}); check --data_path") from error


def engine_spec(task: Task, name: str, streams: int) -> EngineSpec:
    """Return the specification of the engine for the model of this name.

    Raises ConfigError if a flag is invalid, or does not support several models.
    """
    opt = task.options
    names, shapes = parse_shapes(opt.input_shapes, opt.batch_size) if opt.input_shapes else ((), None)
    if shapes is None:
        sizes = task.input_size()
        shapes = sizes.get(name) if isinstance(sizes, Mapping) else sizes
    elif task.models:
        raise ConfigError(f"--input_shapes is for one model; of {', '.join(task.models)} use --dim {name}.SYMBOL=SIZE")
    return EngineSpec(
        ckpt=opt.models[name],
        batch_size=opt.batch_size,
        input_size=shapes,
        input_name=tuple(opt.input_name) or names,
        dtype=opt.dtype,
        pass_path=find_pass(opt.pass_path),
        rank=rank_and_size()[0],
        streams=opt.streams or streams,
        calibration=opt.calib,
        dims=dims_of(opt.dim, name, opt.models),
        open_sizes=task.open_sizes().get(name, {}),
        min_cosine=opt.least_cosine,
        images=task.image_inputs and not opt.input_shapes,
        shard_tables=opt.shard_tables,
    )


@contextmanager
def open_engines(task: Task, streams: int = 1) -> Iterator[dict[str, Engine]]:
    """Open the engines of the task's options, by name, and bind the task to the model.

    ``streams``: calls to compute at the same time, without ``--streams``. Raises ConfigError, with the command, if the
    default model has not been exported yet.
    """
    options = task.options
    for path in options.models.values():
        export = path.parent / "export_onnx.py"
        if options.default_ckpt and not path.exists() and export.is_file():
            raise ConfigError(f"model file {path} does not exist yet; make it: python {os.path.relpath(export)}")
    with ExitStack() as stack:
        engines = {}
        for name, path in options.models.items():
            with report_slow_opening(options.target, path):
                engines[name] = stack.enter_context(open_engine(options.target, engine_spec(task, name, streams)))
        task.bind(described(engines))
        yield engines
