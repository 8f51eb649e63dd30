"""``utils/moved.py``: modules under the names they had before, and what named their contents."""

from __future__ import annotations

import sys
import warnings
from importlib import import_module
from pathlib import Path

import pytest

from utils.metrics import Metric
from utils.metrics.definition import metric_from_json, metric_to_json
from utils.moved import MOVED

PACKAGES = {
    "utils.datasets.graphs": ("files", "read_graphs"),
    "utils.datasets.text": ("texts", "load_texts"),
    "utils.metrics.detection": ("metric", "MeanAveragePrecision"),
    "utils.metrics.text": ("edits", "CharacterErrorRate"),
    "utils.tasks.classification": ("task", "CLASSIFICATION"),
    "utils.tasks.ctr_prediction": ("task", "CTR_PREDICTION"),
    "utils.tasks.detection": ("task", "DETECTION"),
    "utils.tasks.face_verification": ("task", "FACE_VERIFICATION"),
    "utils.tasks.graph_prediction": ("task", "GRAPH_PREDICTION"),
    "utils.tasks.item_recommendation": ("task", "ITEM_RECOMMENDATION"),
    "utils.tasks.node_classification": ("task", "NODE_CLASSIFICATION"),
    "utils.tasks.page_reading": ("task", "PAGE_READING"),
    "utils.tasks.policy_rollout": ("task", "POLICY_ROLLOUT"),
    "utils.tasks.segmentation": ("task", "SEGMENTATION"),
    "utils.tasks.speaker_verification": ("task", "SPEAKER_VERIFICATION"),
    "utils.tasks.speech_recognition": ("task", "SPEECH_RECOGNITION"),
    "utils.tasks.text_generation": ("task", "TEXT_GENERATION"),
    "utils.tasks.text_recognition": ("task", "TEXT_RECOGNITION"),
    "utils.tasks.voice_activity": ("task", "VOICE_ACTIVITY"),
}
"""Package that was a module -> the module that has its names now, and one of them."""

METRICS = {
    "utils.metrics.answers:ExactMatch": "utils.metrics.text.answers",
    "utils.metrics.detection:MeanAveragePrecision": "utils.metrics.detection.metric",
    "utils.metrics.faces:FaceAveragePrecision": "utils.metrics.detection.faces",
    "utils.metrics.page_reading:PageErrorRate": "utils.metrics.text.page_reading",
    "utils.metrics.perplexity:Perplexity": "utils.metrics.text.perplexity",
    "utils.metrics.text:CharacterErrorRate": "utils.metrics.text.edits",
    "utils.metrics.transcripts:WordErrorRate": "utils.metrics.text.transcripts",
}
"""Class path of a metric's definition before -> its module now."""


@pytest.mark.parametrize("old", MOVED)
def test_an_old_name_is_the_new_module(old: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert old != MOVED[old]
    new = _imported(MOVED[old])
    monkeypatch.delitem(sys.modules, old, raising=False)
    with pytest.warns(DeprecationWarning, match=MOVED[old].replace(".", r"\.")):
        assert import_module(old) is new
    assert new.__name__ == MOVED[old] == new.__spec__.name


def _imported(name: str) -> object:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] in ("utils", "engine"):
            raise
        pytest.skip(f"{name} needs {error.name}")


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_has_the_names_of_its_former_module(package: str) -> None:
    module, name = PACKAGES[package]
    assert getattr(import_module(package), name) is getattr(import_module(f"{package}.{module}"), name)
    with pytest.raises(AttributeError):
        getattr(import_module(package), "nothing_of_this_name")  # noqa: B009
    assert {str(path.parent).replace("/", ".") for path in _packages()} == set(PACKAGES)


def _packages() -> list[Path]:
    root = Path(__file__).resolve().parents[2]
    files = (root / "utils").rglob("__init__.py")
    return [path.relative_to(root) for path in files if "names_of_module(" in path.read_text(encoding="utf-8")]


@pytest.mark.parametrize("before", METRICS)
def test_definitions_with_old_paths_are_read(before: str) -> None:
    module, name = METRICS[before], before.rpartition(":")[2]
    cls: type[Metric] = getattr(import_module(module), name)
    written = metric_to_json(cls())
    assert written["class"] == f"{module}:{name}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        read = metric_from_json({**written, "class": before}, None)
    assert type(read) is cls
    assert metric_to_json(read) == written
