"""Guards of models for OpenVINO (:mod:`.ov_guard`), computed once by :mod:`.ov_analysis` and then cached."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.backends.ov_guard import TABLE, Guard, Probe
from engine.onnx.content import model_content
from tecoinfer_modelzoo.cache import read_entry, write_entry
from tecoinfer_modelzoo.json_types import MOST, Problems, entries, number, text, whole

_VERSION = 4  # incremented when the analysis finds other guards
_KIND = "openvino_guards"


def guard_of(path: Path) -> Guard:
    """Return a model's guard, from the cache if it is there; raise ModelError if the model cannot be read."""
    known = f"{model_content(path).sha256} {hashlib.sha256(TABLE.read_bytes()).hexdigest()} {_VERSION}"
    key = hashlib.sha256(known.encode()).hexdigest()
    entry = read_entry(_KIND, key)
    if entry is not None and (found := _from_json(entry)) is not None:
        return found
    from engine.backends.ov_analysis import analysed
    from engine.onnx.load import load_model

    guard = analysed(load_model(path))
    write_entry(_KIND, key, _to_json(guard))
    return guard


def _to_json(guard: Guard) -> dict[str, Any]:
    return {
        "refusal": guard.refusal,
        "bounds": {name: list(bounds) for name, bounds in guard.bounds.items()},
        "longest": guard.longest,
        "probes": [[probe.tensor, probe.low, probe.high] for probe in guard.probes],
    }


def _from_json(entry: Mapping[str, Any]) -> Guard | None:
    try:
        bounds = {
            name: (whole(low, -MOST), whole(high, -MOST)) for name, (low, high) in entries(entry["bounds"]).items()
        }
        probes = [Probe(text(name), _bound(low), _bound(high)) for name, low, high in entry["probes"]]
        return Guard(text(entry["refusal"]), bounds, whole(entry["longest"], 1), tuple(probes))
    except Problems:
        return None


def _bound(value: Any) -> float | None:
    return None if value is None else number(value, -1e30)
