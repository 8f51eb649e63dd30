"""The scorecard of a model: ``numerics.yaml`` and ``perf.yaml`` in its folder, written only by a check.

Both contain the results of a run with its versions, hashes, commit and date, and a digest that detects manual edits.
``teco check --update`` writes them, and a check compares its figures with them.
"""

from __future__ import annotations

import hashlib
import json
import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from engine import Array, ConfigError
from engine.host import processor_name
from engine.onnx import model_content
from model_config.cases.config import Case, Command, relative
from model_config.judge.stored_outputs import FORMULA, TOLERANCES, deviation, from_text, to_text
from model_config.judge.targets import OnTarget
from model_config.results import Accuracy, Finding
from tecoinfer_modelzoo.files import hash_files, write_file
from tecoinfer_modelzoo.json_values import plain
from tecoinfer_modelzoo.text import one_line
from tecoinfer_modelzoo.trees import below
from tecoinfer_modelzoo.yaml_files import YamlError, read_yaml
from utils.fetch import kept_path

SCHEMA_VERSION = 1
"""Version of the layout of both files; it increases when a field changes its meaning or is removed."""

NUMERICS, PERF = "numerics.yaml", "perf.yaml"

PACKAGES = ("numpy", "onnx", "onnxruntime")
"""Packages whose versions are recorded."""

_FIX = "let `teco check {case} --update` write it"
_ENTRIES = {NUMERICS: "metrics", PERF: "figures"}


@dataclass(frozen=True, slots=True)
class Measured:
    """Results of the check of one case for the scorecard.

    Attributes:
        case, step: the case and its valid step.
        metric_name, metric, samples: of the valid step; ``metric_name`` is empty if the metric is meaningless.
        accuracy: the comparisons.
        speed: result of :func:`model_config.judge.speed.figures`.
        model_sha256, data_sha256: of the ONNX files and of all files of the data set; ``None`` for missing data.
        higher_is_better: the metric's direction.
        others: results on other targets.
        outputs: values of some outputs, of the target to compare or of the baseline to store; empty: neither.
        precision: that of the target for ``outputs``; empty if they are not compared.
    """

    case: Case
    step: Command
    metric_name: str
    metric: float
    samples: int
    accuracy: Sequence[Accuracy]
    speed: Mapping[str, float]
    model_sha256: str
    data_sha256: str | None
    higher_is_better: bool = True
    others: Sequence[OnTarget] = ()
    outputs: Sequence[Array] = ()
    precision: str = ""

    @property
    def key(self) -> dict[str, Any]:
        """Identification of the entry in a file."""
        params = self.step.params
        names = ("target", "dtype", "batch_size")
        return {"case": self.case.name, **{name: params[name] for name in names}}


def hash_models(folder: Path, ckpts: Mapping[str, str]) -> str:
    """Return the SHA-256 of a model's content, or of the names and hashes of several; empty if one is missing.

    This is the hash of its file, or a combined hash for a model with external weights.

    Args:
        folder: folder that the paths are relative to.
        ckpts: paths by name, as in :attr:`model_config.cases.case.Command.ckpts`.
    """
    files = {name: kept_path(folder, path) for name, path in ckpts.items()}
    if not all(file.is_file() for file in files.values()):
        return ""
    return _joined({name: model_content(file).sha256 for name, file in files.items()}) or ""


def hash_data(folder: Path, paths: Mapping[str, str]) -> str | None:
    """Return the SHA-256 of the files of a data set and their names, or of the names and hashes of several data sets.

    Args:
        folder: folder that the paths are relative to.
        paths: paths by name, as in :attr:`model_config.cases.case.Command.data_paths`.

    Returns:
        ``None`` without data, or if some of it is missing.
    """
    return _joined({name: _hash_path(kept_path(folder, path)) for name, path in paths.items()})


def _joined(hashes: Mapping[str, str | None]) -> str | None:
    """Return the only hash, or the combined hash of several."""
    if not hashes or None in hashes.values():
        return None
    if len(hashes) == 1:
        return next(iter(hashes.values()))
    text = "".join(f"{name}\0{found}\n" for name, found in sorted(hashes.items()))
    return hashlib.sha256(text.encode()).hexdigest()


def _hash_path(path: Path) -> str | None:
    if path.is_file():
        return hash_files(path)
    if not path.is_dir():
        return None
    digest = hashlib.sha256()
    for file in sorted(below(path)):
        if file.is_file():
            digest.update(
                f"{file.relative_to(path).as_posix()}\0{hash_files(file)}\n".encode("utf-8", "surrogateescape")
            )
    return digest.hexdigest()


def read(folder: Path, name: str) -> dict[str, Any]:
    """Return one file of a scorecard; empty if it does not exist.

    Raises:
        ConfigError: the file is not a valid scorecard.
    """
    path = folder / name
    try:
        found = read_yaml(path)
    except FileNotFoundError:
        return {}
    except (OSError, YamlError) as error:
        reason = one_line(error)
        raise ConfigError(f"{path}: cannot be read ({reason}); delete it and write it again with --update") from error
    if not isinstance(found, dict) or not _is_scorecard(found, _ENTRIES[name]):
        raise ConfigError(f"{path}: is not a scorecard; delete it and write it again with --update")
    return found


def _is_scorecard(found: Mapping[Any, Any], key: str) -> bool:
    """Return whether parsed YAML has the form of a scorecard file."""
    entries = found.get(key, [])
    whole = isinstance(entries, list) and all(isinstance(name, str) for name in found)
    return whole and all(isinstance(entry, dict) and all(map(_is_field, entry.items())) for entry in entries)


def _is_field(field: tuple[Any, Any]) -> bool:
    key, value = field
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return isinstance(key, str) and (number or not (key == "value" or key.endswith("_s")) or value is None)


def stored_speed(folder: Path, key: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures stored for a case in seconds, and their ``processor``; empty if there are none."""
    entry = _entry(read(folder, PERF).get("figures", []), key) or {}
    figures = {name: float(value) for name, value in entry.items() if name.endswith("_s") and value is not None}
    return figures | ({"processor": str(entry["processor"])} if entry.get("processor") else {})


def compare(folder: Path, found: Measured, root: Path) -> list[Finding]:
    """Return findings for invalid stored figures, and for differences from those of this run."""
    findings = []
    for name in (NUMERICS, PERF):
        path = folder / name
        try:
            data = read(folder, name)
        except ConfigError as error:
            what, _, fix = str(error).rpartition("; ")
            findings.append(Finding(relative(path, root), 0, "scorecard", what.split(": ", 1)[-1], fix))
            continue
        if data and data.get("digest") != _digest(data):
            message = "its digest does not match its figures: it was edited manually"
            findings.append(Finding(relative(path, root), 0, "scorecard", message, _FIX.format(case=found.case.name)))
    return findings or _differences(folder, found, root)


def _differences(folder: Path, found: Measured, root: Path) -> list[Finding]:
    entry = _entry(read(folder, NUMERICS).get("metrics", []), found.key)
    if not entry or not found.metric_name or entry.get("value") is None:
        return []
    stored, messages = float(entry["value"]), []
    if abs(found.metric - stored) > abs(stored) * found.case.accuracy.tolerance:
        messages.append(f"says {found.metric_name} {stored:g} for {found.case.name}, this run found {found.metric:g}")
    messages += _other_outputs(from_text(entry.get("outputs")), found)
    fix = f"find out why, or {_FIX.format(case=found.case.name)}"
    return [Finding(relative(folder / NUMERICS, root), 0, "scorecard", message, fix) for message in messages]


def _other_outputs(stored: Sequence[Array], found: Measured) -> list[str]:
    """Return a message if the outputs of this run are not the stored ones."""
    tolerance = TOLERANCES.get(found.precision)
    if not stored or tolerance is None:
        return []
    if not found.outputs:
        return [f"has outputs of {found.case.name}, and this run wrote none for --skip_postprocess with --json"]
    error = deviation(found.outputs, stored)
    if error <= tolerance:
        return []
    return [
        f"has outputs of {found.case.name} from which those of this run deviate by {error:.1e} ({FORMULA}), more than "
        f"{tolerance:g} in {found.precision}: a weight, the preprocessing or the engine computes otherwise"
    ]


def stored_outputs(folder: Path, key: Mapping[str, Any]) -> list[Array]:
    """Return the outputs stored for a case; empty if there are none, or if the file is not a scorecard."""
    try:
        entry = _entry(read(folder, NUMERICS).get("metrics", []), key) or {}
    except ConfigError:  # reported as a finding
        return []
    return from_text(entry.get("outputs"))


def write(folder: Path, found: Measured, commit: str, date: str) -> list[Path]:
    """Write the results into both files, keeping the entries of other cases; return the written files.

    Raises:
        ConfigError: a file cannot be read or written.
    """
    head = {"schema_version": SCHEMA_VERSION, "written_by": f"teco check {version('tecoinfer-modelzoo')}"}
    head |= {"commit": commit, "date": date, "machine": platform.machine()}
    versions = {"python": platform.python_version()} | {name: version(name) for name in PACKAGES}
    written = []
    for name, entries in ((NUMERICS, _numerics(found)), (PERF, _perf(found))):
        if not entries:
            continue
        old = read(folder, name).get(_ENTRIES[name], [])
        others = [entry for entry in old if entry.get("case") != found.case.name]
        data = {**head, "versions": versions, _ENTRIES[name]: sorted(others + entries, key=_order)}
        _save(folder / name, data)
        written.append(folder / name)
    return written


def _numerics(found: Measured) -> list[dict[str, Any]]:
    if not found.metric_name:
        return []
    hashes = {"model_sha256": found.model_sha256, "data_sha256": found.data_sha256}
    direction = {} if found.higher_is_better else {"higher_is_better": False}
    own = {**found.key, "metric": found.metric_name, "value": found.metric, "samples": found.samples}
    own |= direction | hashes | ({"outputs": to_text(found.outputs)} if len(found.outputs) else {})
    against = []
    for one in found.accuracy:
        entry = {"reference": one.against, "value": one.reference, "relative_difference": one.relative_difference}
        entry |= {"verdict": one.verdict.value, "tolerance": one.tolerance, "samples": one.samples}
        against.append(entry | ({"interval": list(one.interval)} if one.interval else {}))
    others = [
        found.key
        | {"target": one.target, "dtype": one.dtype, "metric": one.metric_name, "value": one.metric}
        | {"samples": one.samples, **direction, "data_sha256": found.data_sha256}
        for one in found.others
    ]
    return [own | {"against": against}, *others]


def _perf(found: Measured) -> list[dict[str, Any]]:
    if not found.speed:
        return []
    return [{**found.key, "model_sha256": found.model_sha256, "processor": processor_name(), **found.speed}]


def _save(path: Path, data: dict[str, Any]) -> None:
    import yaml

    data = plain(data, _leaf)
    data["digest"] = _digest(data)
    text = "# Written by `teco check --update`; do not edit.\n"
    text += yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=120)
    write_file(path, text.encode())


def _digest(data: Mapping[str, Any]) -> str:
    plain = {key: value for key, value in data.items() if key != "digest"}
    try:
        return hashlib.sha256(json.dumps(plain, sort_keys=True, default=str).encode()).hexdigest()
    except (TypeError, ValueError):  # keys of several types, or surrogates: not written by a check
        return ""


def _leaf(value: Any) -> Any:
    """Return a value that YAML and JSON read back unchanged: NaN as ``None``, floats with ten digits."""
    if isinstance(value, float):
        return float(f"{value:.10g}") if math.isfinite(value) else None
    return value


def _entry(entries: Sequence[Any], key: Mapping[str, Any]) -> dict[str, Any] | None:
    for entry in entries:
        if isinstance(entry, dict) and all(entry.get(name) == value for name, value in key.items()):
            return entry
    return None


def _order(entry: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(entry.get(name)) for name in ("case", "target", "dtype", "batch_size"))


def version(package: str) -> str:
    """Return the version of an installed package, or ``unknown``."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "unknown"
