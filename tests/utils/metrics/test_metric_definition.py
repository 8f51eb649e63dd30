from __future__ import annotations

import copy
import json
import pickle
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import RunPython

from engine import ConfigError, DataError
from utils.metrics import MeanMetric, Metric, TopK, metric_from_json, metric_to_json


class Base(MeanMetric):
    name = "base"

    def records(self, predictions: Any, targets: Any, contexts: Any) -> Any:
        return np.asarray(predictions)


class Many(Base):
    def __init__(
        self, first: Any, second: float = 2.5, *, third: Any = None, odd: Any = frozenset(), **rest: Any
    ) -> None:
        self.got = first, second, third, rest


@dataclass
class Plain(Base):
    beta: float = 1.0


class Placed(Base):
    def __init__(self, *classes: int) -> None:
        self.classes = classes


def again(metric: Metric, root: Path) -> Metric:
    return metric_from_json(json.loads(json.dumps(metric_to_json(metric))), root)


def test_a_metric_of_the_core(tmp_path: Path) -> None:
    assert metric_to_json(TopK()) == {"class": "utils.metrics.classification:TopK", "options": {"k": 1}}
    found = again(TopK(k=5), tmp_path)
    assert isinstance(found, TopK)
    assert (found.k, found.name, found.total) == (5, "top5", 0)
    for same in (copy.deepcopy(TopK(3)), pickle.loads(pickle.dumps(TopK(3)))):  # noqa: S301 -- our own
        assert metric_to_json(same)["options"] == {"k": 3}


def test_arguments_of_any_kind(root: Path) -> None:
    metric = Many(("a", np.int64(2)), third={"x": [True, None]}, more=1.5)
    options = metric_to_json(metric)["options"]
    assert options == {"first": ["a", 2], "second": 2.5, "third": {"x": [True, None]}, "more": 1.5}
    found = again(metric, root)
    assert type(found).__name__ == "Many"
    assert found.got == (["a", 2], 2.5, {"x": [True, None]}, {"more": 1.5})  # type: ignore[attr-defined]
    assert metric_to_json(Plain(0.5))["options"] == {"beta": 0.5}


@pytest.mark.parametrize("value", [np.zeros(2), {1: 2}, float("nan"), Path("x"), {"a": object()}])
def test_arguments_that_are_not_json_values(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"metric Many: argument first"):
        metric_to_json(Many(value))


def test_classes_that_other_processes_cannot_find() -> None:
    class Hidden(Base):
        pass

    with pytest.raises(ConfigError, match="Hidden is defined inside"):
        metric_to_json(Hidden())
    with pytest.raises(ConfigError, match="metric Placed: argument classes"):
        metric_to_json(Placed(1, 2))


SCRIPT = """
from dataclasses import dataclass
import json
import numpy as np
import beside
from utils.metrics import MeanMetric, metric_to_json

@dataclass
class Scaled(MeanMetric):
    factor: float = 1.0
    name = "scaled"
    def records(self, predictions, targets, contexts):
        return beside.BY * self.factor * np.asarray(predictions, float)

if __name__ == "__main__":
    print(json.dumps([metric_to_json(Scaled(3.0)), metric_to_json(beside.Own())]))
"""

BESIDE = """
from utils.metrics import TopK
BY = {by}
class Own(TopK):
    pass
"""


def test_a_metric_of_a_script_and_of_a_module_next_to_it(tmp_path: Path, run_python: RunPython) -> None:
    for by, name in ((2, "one"), (10, "two")):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "eval.py").write_text(SCRIPT)
        (folder / "beside.py").write_text(BESIDE.format(by=by))
        done = run_python(folder / "eval.py")
        assert (done.returncode, done.stderr) == (0, "")
        scaled, own = json.loads(done.stdout)
        assert scaled == {"class": f"{folder.resolve()}/eval.py:Scaled", "options": {"factor": 3.0}}
        metric = metric_from_json(scaled, tmp_path)
        metric.update([1.0, 2.0], [0, 0])
        assert metric.compute() == by * 4.5
        assert isinstance(metric_from_json(own, tmp_path), TopK)
        assert metric_to_json(metric) == scaled
    assert "beside" not in sys.modules
    assert str(folder) not in sys.path
    with pytest.raises(DataError, match=r"is not below .*one"):
        metric_from_json(scaled, tmp_path / "one")


def test_a_metric_of_contrib(tmp_path: Path, run_python: RunPython, root: Path) -> None:
    package = tmp_path / "contrib" / "utils" / "metrics" / "own"
    package.mkdir(parents=True)
    line = "import pkgutil\n\n__path__ = pkgutil.extend_path(__path__, __name__)\n"
    for folder in (package, package.parent, package.parent.parent):
        (folder / "__init__.py").write_text(line)
    (package / "mine.py").write_text("from utils.metrics import TopK\n\n\nclass Mine(TopK):\n    pass\n")
    code = (
        "import sys\nfrom pathlib import Path\nfrom utils.metrics import metric_from_json, metric_to_json\n"
        "data = {'class': 'utils.metrics.own.mine:Mine', 'options': {'k': 2}}\n"
        "metric = metric_from_json(data, Path(sys.argv[1]))\n"
        "assert metric_to_json(metric) == data\nprint(metric.name)"
    )
    done = run_python("-c", code, tmp_path)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "top2", "")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (None, "None is not the definition of a metric"),
        ({"class": 3}, "is not the definition of a metric"),
        ({"class": "TopK"}, "metric TopK is not a class of metrics"),
        ({"class": "utils.metrics.gone:X"}, "utils.metrics.gone .*ModuleNotFoundError"),
        ({"class": "utils.metrics:Gone"}, "utils.metrics:Gone is not a class"),
        ({"class": "pathlib:Path"}, "pathlib:Path is not a class"),
        ({"class": "utils.metrics:TopK", "options": {"k": 0}}, r"options {'k': 0}: top-k"),
        ({"class": "utils.metrics:TopK", "options": {"j": 1}}, "cannot be created"),
        ({"class": "utils.metrics:TopK", "options": [1]}, "cannot be created"),
        ({"class": "utils.metrics:Metric"}, "cannot be created"),
    ],
)
def test_definitions_that_cannot_be_loaded(tmp_path: Path, data: Any, words: str) -> None:
    with pytest.raises(DataError, match=words) as caught:
        metric_from_json(data, tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "the file does not exist"),
        ("import sys\nsys.exit(3)\n", "SystemExit: 3"),
        ("1 / 0\n", "ZeroDivisionError: division by zero"),
        ("def broken(:\n", "SyntaxError"),
        ("X = 3\n", "is not a class of metrics"),
    ],
)
def test_scripts_that_cannot_be_loaded(tmp_path: Path, text: str | None, words: str) -> None:
    if text is not None:
        (tmp_path / "eval.py").write_text(text)
    with pytest.raises(DataError, match=words):
        metric_from_json({"class": f"{tmp_path}/eval.py:X", "options": {}}, tmp_path)
