"""Flags of clips and cameras."""

from __future__ import annotations

from pathlib import Path

from engine import ConfigError
from utils.tasks.base import Task
from utils.tasks.options import DATA, Options
from utils.video.sources import source_of

OF_FRAMES = ("frames", "save_frames")
"""Names of the common flags of tasks whose samples may be frames."""


def frame_range(text: str) -> slice:
    """Parse ``--frames``; see :func:`utils.datasets.image.frames.frame_range`, which few runs need."""
    from utils.datasets.image import frames

    return frames.frame_range(text)


def frame_source(opt: Options) -> Path | None:
    """Return the clip or camera of ``--data_path``; ``None`` if the data are others."""
    paths = opt.paths
    path = paths.get(DATA)
    if path is None or len(paths) > 1 or source_of(path) is None or path.is_dir():
        return None
    return path


def check_frames(opt: Options, task: type[Task]) -> None:
    """Check the flags of clips and cameras before anything is opened.

    Raises:
        ConfigError: the task or the script does not take frames, or a flag does not go with the data.
    """
    path = frame_source(opt)
    kind = None if path is None else source_of(path)
    if kind is None:
        given = [f"--{key}" for key in ("frames", "save_frames") if getattr(opt, key)]
        if given:
            raise ConfigError(f"{given[0]} is for a clip or a camera, and --data_path is {opt.data_text}; leave it out")
        return
    if not task.image_samples:
        raise ConfigError(f"{path}: task {task.name} does not take {kind.what}; pass {task.data_help}")
    if opt.script == "valid":
        raise ConfigError(
            f"{path}: {kind.what} has no labels to evaluate; use example_multi_batch.py, or pass data with labels"
        )
    if opt.save_frames and opt.save is None:
        raise ConfigError("--save_frames writes into the folder of --save; add --save DIR")
    if kind.live and opt.worker_mode == "process":
        raise ConfigError(f"{path}: {kind.what} is read by one process; use --worker_mode thread")
    if kind.live and opt.dtype == "int8":
        raise ConfigError(
            f"{path}: --dtype int8 reads samples twice, and {kind.what} cannot; record a clip and pass it"
        )
