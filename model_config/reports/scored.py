"""Models of the zoo with their scorecards, for the page of the zoo."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine import ConfigError
from model_config.judge.scorecard import NUMERICS, PERF, SCHEMA_VERSION, read
from model_config.reports.described import Described, read_described
from model_config.results import Accuracy, Verdict
from tecoinfer_modelzoo.files import text_of
from tecoinfer_modelzoo.formatting import clean_line

PLACES = {"core": "example", "contrib": "contrib/example"}
"""Folders that contain the models as ``<domain>/<model>``, from the repository's root."""


@dataclass(frozen=True, slots=True)
class Key:
    """Identification of a scorecard entry."""

    case: str
    target: str
    dtype: str
    batch_size: int


@dataclass(frozen=True, slots=True)
class ScoredMetric:
    """A metric of a case, and its comparisons."""

    key: Key
    name: str
    value: float
    samples: int
    higher_is_better: bool
    against: tuple[Accuracy, ...]


@dataclass(frozen=True, slots=True)
class Figures:
    """Times of a case in seconds: host time per sample, calibration kernel, and optionally simulated time."""

    key: Key
    host: float | None
    kernel: float | None
    simulated: float | None
    latency: float | None

    @property
    def relative(self) -> float | None:
        """Host time per sample divided by the time of the calibration kernel."""
        return self.host / self.kernel if self.host is not None and self.kernel else None


@dataclass(frozen=True, slots=True)
class ScoredModel:
    """A model's folder with its scorecard.

    Attributes:
        name, domain, place, path, title: folder, its parent folder, a key of :data:`PLACES`, path from the root, and
            the first heading of its README.
        metrics, figures: content of ``numerics.yaml`` and ``perf.yaml``; both empty if it was never checked.
        commit, date, versions, written_by: from the newer of the two files.
        texts: content of its ``zoo.yaml``; ``None`` without the file.
    """

    name: str
    domain: str
    place: str
    path: str
    title: str
    metrics: tuple[ScoredMetric, ...]
    figures: tuple[Figures, ...]
    commit: str
    date: str
    versions: Mapping[str, str]
    written_by: str
    texts: Described | None = None

    @property
    def targets(self) -> list[str]:
        """Targets that have a metric or a time, sorted."""
        keys = [entry.key for entry in self.metrics] + [entry.key for entry in self.figures]
        return sorted({key.target for key in keys})


def find_models(root: Path) -> list[ScoredModel]:
    """Return the models below a root, the core's first, each group sorted by path.

    Raises:
        ConfigError: a scorecard cannot be read, or is not one.
    """
    return [
        _model(folder, place, root)
        for place, where in PLACES.items()
        for folder in sorted((root / where).glob("*/*"))
        if _is_model(folder)
    ]


def _is_model(folder: Path) -> bool:
    return any(next(folder.glob(pattern), None) for pattern in ("example_*.py", NUMERICS, PERF))


def _model(folder: Path, place: str, root: Path) -> ScoredModel:
    numerics, perf = _scorecard(folder, NUMERICS), _scorecard(folder, PERF)
    texts = read_described(folder)
    last = max(numerics, perf, key=lambda data: (str(data.get("date", "")), bool(data)))
    try:
        return ScoredModel(
            folder.name,
            folder.parent.name,
            place,
            folder.relative_to(root).as_posix(),
            _title(folder),
            tuple(_metric(entry) for entry in numerics.get("metrics", [])),
            tuple(_figures(entry) for entry in perf.get("figures", [])),
            str(last.get("commit", "")),
            str(last.get("date", "")),
            {str(name): str(value) for name, value in last.get("versions", {}).items()},
            str(last.get("written_by", "")),
            texts,
        )
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        what = (
            f"lacks {error}"
            if isinstance(error, KeyError)
            else f"has a value of the wrong type ({clean_line(str(error))})"
        )
        raise ConfigError(
            f"{folder}: {NUMERICS} or {PERF} {what}; delete both and write them again with `teco check --update`"
        ) from error


def _scorecard(folder: Path, name: str) -> dict[str, Any]:
    data = read(folder, name)
    if data and data.get("schema_version") != SCHEMA_VERSION:
        found = clean_line(str(data.get("schema_version")))
        what = f"schema_version is {found}, not {SCHEMA_VERSION}"
        raise ConfigError(f"{folder / name}: {what}; delete it and write it again with `teco check --update`")
    return data


def _key(entry: Mapping[str, Any]) -> Key:
    return Key(str(entry["case"]), str(entry["target"]), str(entry["dtype"]), int(entry["batch_size"]))


def _metric(entry: Mapping[str, Any]) -> ScoredMetric:
    name, value = str(entry["metric"]), float(entry["value"])
    against = tuple(_accuracy(name, value, one) for one in entry.get("against", []))
    better = entry.get("higher_is_better") is not False
    return ScoredMetric(_key(entry), name, value, int(entry["samples"]), better, against)


def _accuracy(name: str, value: float, one: Mapping[str, Any]) -> Accuracy:
    low_high = one.get("interval")
    return Accuracy(
        Verdict(one["verdict"]),
        "",
        str(one["reference"]),
        name,
        value,
        float(one["value"]),
        float(one["relative_difference"]),
        float(one["tolerance"]),
        int(one.get("samples", 0)),
        interval=(float(low_high[0]), float(low_high[1])) if low_high else None,
    )


def _figures(entry: Mapping[str, Any]) -> Figures:
    names = ("host_s", "kernel_s", "simulated_s", "simulated_latency_s")
    return Figures(_key(entry), *(None if entry.get(name) is None else float(entry[name]) for name in names))


def _title(folder: Path) -> str:
    """Return the first heading of the README; the folder's name if there is none."""
    try:
        lines = text_of(folder / "README.md", "replace").splitlines()
    except OSError:
        lines = []
    return next((line[2:].strip() for line in lines if line.startswith("# ")), folder.name)
