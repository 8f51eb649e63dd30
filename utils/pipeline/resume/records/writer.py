"""Select the writer of records files by metric."""

from __future__ import annotations

from pathlib import Path

from utils.metrics.base import Metric
from utils.pipeline.resume.records.file import RecordsFile
from utils.pipeline.resume.records.rows import RecordWriter


def record_writer(path: Path, metric: Metric, *, rank: int = 0, size: int = 1) -> RecordsFile:
    """Return the writer for a metric's records; arguments as for :class:`RecordWriter`.

    Raises:
        ConfigError: the file cannot be written, or another run writes it.
    """
    if metric.per_sample:
        return RecordWriter(path, metric.name, rank=rank, size=size, has_margins=metric.has_margins)
    from utils.pipeline.resume.records.arrays import ArrayRecordWriter

    return ArrayRecordWriter(path, metric.name, rank=rank, size=size, has_margins=metric.has_margins)
