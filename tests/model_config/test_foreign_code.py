"""Tests of contributed code that attacks the check: it runs in limited processes and cannot change the verdict."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stub_model import Change, Stub, write_zoo

pytest.importorskip("rich")

from model_config import results
from model_config.cases.config import ROOT, read_cases
from model_config.judge.foreign import Answered, _is_core as is_core_metric, said_of
from model_config.judge.gate import judge, read_pairs
from model_config.results import Finding
from model_config.run import foreign
from model_config.run.foreign import Foreign, ForeignError, contributed, is_core
from model_config.run.limits import Limits
from model_config.structure import check_structure
from utils.metrics import TopK, metric_from_json, metric_to_json

EXTENDS = "import pkgutil\n\n__path__ = pkgutil.extend_path(__path__, __name__)\n"

CHECK = (
    "import json, os, sys; from pathlib import Path; from model_config.check import command\n"
    "code = command(sys.argv[2:], Path(sys.argv[1]))\n"
    "files = [str(getattr(module, '__file__', '')) for module in list(sys.modules.values())]\n"
    "paths = [str(place) for module in list(sys.modules.values()) for place in getattr(module, '__path__', ())]\n"
    "inside = [one for one in (*files, *paths, *sys.path) if one.startswith(sys.argv[1])]\n"
    "Path(sys.argv[1]).with_name('after.json').write_text(json.dumps({'pid': os.getpid(), 'inside': inside}))\n"
    "sys.exit(code)"
)
"""As `python -m model_config.check` does it for another repository; says afterwards what of that was imported."""

MARK = """\
import os
with open(os.environ["TECO_TEST_PIDS"], "a") as file:
    print(os.getpid(), os.getppid(), file=file)
"""

TASK = (
    "from dataclasses import replace\nfrom utils.tasks.base import Flag\n"
    "from utils.tasks.classification.task import CLASSIFICATION\n"
    "TASK = replace(CLASSIFICATION, name={name!r}, flags=(Flag('--ckpt2', 'x'),))\n"
)

PATCHES = """\
import sys
import model_config.judge.gate as gate
import model_config.results as results
import model_config.run.runner as runner
import model_config.structure as structure
for module in (results, sys.modules.get("__main__"), sys.modules.get("model_config.check")):
    if module is not None:
        module.EXIT_CODES = dict.fromkeys(results.Verdict, 0)
results.CaseResult.verdict = results.CheckResult.verdict = property(lambda self: results.Verdict.PASS)
results.CheckResult.exit_code = property(lambda self: 0)
runner.run_step = structure.check_structure = gate.judge = None
"""

WRITES = """\
import os, sys
sys.stdout.write('{"flags": null}')
sys.stdout.flush()
for number in range(1, 64):
    try:
        os.write(number, b'{"flags": null}')
    except OSError:
        continue
"""

HOSTILE = {
    "exits": "os._exit(0)\n",
    "ends": "raise SystemExit(0)\n",
    "raises": "raise BaseException('no')\n",
    "writes": WRITES,
    "forks": "while True:\n    os.fork()\n",
    "kills": "import signal\nos.kill(os.getppid(), signal.SIGKILL)\nos.kill(os.getpid(), signal.SIGSEGV)\n",
}
"""Actions of a module on import that result in a finding."""

METRIC = """
import numpy as np
from utils.metrics import MeanMetric


class Share(MeanMetric):
    name, bounds = "top1", (0.0, 1.0)

    def records(self, predictions, targets, contexts):
        return np.asarray(predictions)
"""

SPREAD = """
import numpy as np
from utils.metrics import RecordMetric


class Spread(RecordMetric):
    name, higher_is_better = "spread", False

    def records(self, predictions, targets, contexts):
        return np.asarray(predictions)

    def value(self, records, weights):
        mean = records @ weights / weights.sum()
        return float(np.sqrt((records - mean) ** 2 @ weights / weights.sum()))
"""


def module(root: Path, name: str, text: str, package: str = "tasks") -> None:
    """Write a module of ``contrib/utils`` that records the process that imports it."""
    folder = root / "contrib/utils" / package
    folder.mkdir(parents=True, exist_ok=True)
    for place in (folder, folder.parent):
        (place / "__init__.py").write_text(EXTENDS)
    (folder / f"{name}.py").write_text(MARK + text)


def runs(name: str, *, wrong: int = 3) -> Change:
    """Make a script run a contributed task with a number of errors."""

    def change(stub: Stub) -> None:
        used = f"from utils.tasks.{name} import TASK\n    from utils.pipeline import cli, evaluate\n\n"
        stub.script(
            "example_valid.py", "from utils.pipeline import evaluate\n\n", f"{used}    cli.valid(__doc__, TASK)\n"
        )
        mistaken(stub, wrong)

    return change


def measures(name: str, cls: str = "Share", *, wrong: int = 3) -> Change:
    """Make a script use a contributed metric."""

    def change(stub: Stub) -> None:
        described = {"class": f"utils.metrics.{name}:{cls}", "options": {}}
        new = f'result["metric_definition"] = {described!r}\n    if opt.json:'
        stub.script("example_valid.py", "if opt.json:", new)
        mistaken(stub, wrong)

    return change


def mistaken(stub: Stub, wrong: int) -> None:
    stub.answers["wrong"]["sdaa"] = list(range(1, wrong + 1))


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TECO_TEST_PIDS", str(tmp_path / "pids"))
    (tmp_path / "zoo").mkdir()
    return tmp_path / "zoo"


def started(root: Path, *argv: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", CHECK, str(root), "--no-cache", "--json", str(root.parent / "out.json"), *argv]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def checked(root: Path, *argv: str) -> tuple[int, dict[str, Any]]:
    """Run a whole check in a separate process; return its exit code, and the cases by name."""
    with started(root, *argv) as running:
        _, err = running.communicate(timeout=300)
    assert "Traceback" not in err
    cases = json.loads((root.parent / "out.json").read_text())["cases"]
    after = json.loads((root.parent / "after.json").read_text())
    assert after["inside"] == []
    pids = (root.parent / "pids").read_text().split()[::2]
    assert pids
    assert str(after["pid"]) not in pids
    return running.returncode, {case["case"]: case for case in cases}


@pytest.mark.slow
def test_contributed_code_is_not_imported_by_the_check(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module(root, "exits", HOSTILE["exits"])
    module(root, "patches", PATCHES + METRIC, "metrics")
    write_zoo(root, {"exits": runs("exits", wrong=600), "patches": measures("patches", wrong=600)})
    # A contributor's own setting; nothing of it comes before the zoo.
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(root / "contrib")]))
    code, cases = checked(root)
    assert code == 1
    assert [one["rule"] for one in cases["exits"]["findings"]] == ["task-import"]
    assert cases["patches"]["findings"] == []
    assert {case["parts"]["accuracy"] for case in cases.values()} == {"FAIL"}
    assert all(step["passed"] for case in cases.values() for step in case["steps"])


@pytest.mark.long
@pytest.mark.slow
def test_tasks_that_attack_the_check_get_a_finding_each(root: Path) -> None:
    for name, text in HOSTILE.items():
        module(root, name, text)
        (found,) = structure(root, name, Limits(processes=50))
        assert (found.file, found.line) == (f"contrib/utils/tasks/{name}.py", 0), name
    module(root, "patches", PATCHES + TASK.format(name="patches"))
    assert structure(root, "patches", Limits()) == []
    assert results.CheckResult(()).exit_code == 0
    assert results.CheckResult((), ("a problem",)).exit_code == 1


@pytest.mark.slow
def test_metrics_that_attack_the_check_do_not_pass(root: Path) -> None:
    module(root, "honest", METRIC, "metrics")
    module(root, "exits", METRIC + "    def value(self, records, weights):\n        os._exit(0)\n", "metrics")
    module(root, "raises", METRIC + "    def value(self, records, weights):\n        raise SystemExit(0)\n", "metrics")
    module(root, "nonsense", METRIC + "    bounds = ('x', [])\n", "metrics")
    changes = {"honest": measures("honest"), "wrong": measures("honest", wrong=600)}
    write_zoo(root, {**changes, **{name: measures(name) for name in ("exits", "raises", "nonsense")}})
    code, cases = checked(root)
    assert code == 1
    verdicts = {name: case["parts"]["accuracy"] for name, case in cases.items()}
    assert verdicts == {"honest": "PASS", **dict.fromkeys(("wrong", "exits", "raises", "nonsense"), "FAIL")}


@pytest.mark.parametrize(
    ("kind", "number"),
    [
        ("task", signal.SIGTERM),
        *(pytest.param("task", signal.SIGINT, marks=pytest.mark.slow),),
        *(pytest.param("metric", number, marks=pytest.mark.slow) for number in (signal.SIGTERM, signal.SIGINT)),
    ],
)
def test_check_ends_before_hanging_contributed_code(root: Path, kind: str, number: int) -> None:
    forever = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True:\n    pass\n"
    module(root, "hangs", forever, f"{kind}s")
    write_zoo(root, {"hangs": runs("hangs") if kind == "task" else measures("hangs")})
    with started(root, "--work-dir", str(root.parent / "work")) as running:
        while running.poll() is None and not (root.parent / "pids").is_file():
            time.sleep(0.05)
        running.send_signal(number)
        _, err = running.communicate(timeout=100)
    assert running.returncode == 130, err
    for pid in (root.parent / "pids").read_text().split():
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)


def structure(root: Path, name: str, limits: Limits) -> list[Finding]:
    shutil.rmtree(root / "contrib/example", ignore_errors=True)
    file = write_zoo(root, {name: runs(name)})
    (case,) = read_cases([file], root)[0]
    return [one for one in check_structure(case, root, Foreign(root, limits)) if one.rule == "task-import"]


@pytest.mark.slow
def test_a_task_that_hangs_is_ended(root: Path) -> None:
    module(root, "hangs", "while True:\n    pass\n")
    (found,) = structure(root, "hangs", Limits(timeout=3.0))
    assert "timed out" in found.message


@pytest.mark.slow
def test_task_limits_of_memory_and_output(root: Path) -> None:
    module(root, "eats", "kept = []\nwhile True:\n    kept.append(b'x' * 2**22)\n")
    (found,) = structure(root, "eats", Limits(timeout=300.0, memory=2**29))
    assert "memory" in found.message
    module(root, "prints", "while True:\n    print('x' * 1000)\n")
    (found,) = structure(root, "prints", Limits(timeout=300.0))
    assert "MiB" in found.message


def test_invalid_answer_is_rejected(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = root / "answers.py"
    monkeypatch.setattr(foreign, "HOME", root)
    monkeypatch.setattr(foreign, "_ANSWERS", "answers")
    for text in ("", "{", "[1]", "null", "9" * 5000, "[" * 100_000):
        answers.write_text(f"print({text!r})")
        with pytest.raises(ForeignError):
            Foreign(root).ask("flags")
    answers.write_text("print('{\"flags\": 1}')")
    assert Foreign(root).ask("flags") == {"flags": 1}


def test_stopped_check_sends_no_query(root: Path) -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(KeyboardInterrupt):
        Foreign(root, stop=stop).ask("flags", module="utils.tasks.x", name="X")


def test_core_modules(root: Path) -> None:
    module(root, "mine", "")
    module(root, "classification", "")
    assert is_core("utils.tasks.classification.task")
    assert is_core("utils.tasks")
    for name in ("utils.tasks.mine", "os", "utils.tasks.no where", "", "contrib.utils.tasks.mine", "utils..tasks"):
        assert not is_core(name)
    assert contributed("utils.tasks.mine", root) == "contrib/utils/tasks/mine.py"
    assert contributed("utils.tasks.classification.task", root) is None  # the core's comes first
    assert contributed("utils.tasks.gone", root) is None


def records(folder: Path, seed: int) -> tuple[Path, np.ndarray]:
    rng = np.random.default_rng(seed)
    values = rng.normal(10.0, 3.0, 200).round(3)
    path = folder / f"{seed}.samples.csv"
    rows = [f"{i},n{i},1,{value}" for i, value in enumerate(values)]
    path.write_text("\n".join(["index,name,label,spread", *rows]) + "\n")
    return path, values


def test_verdict_from_another_process_is_equal(tmp_path: Path) -> None:
    (tmp_path / "spread.py").write_text(SPREAD)
    definition = {"class": f"{tmp_path.resolve()}/spread.py:Spread", "options": {}}
    metric = metric_from_json(definition, tmp_path)
    (ours, first), (theirs, second) = (records(tmp_path, seed) for seed in (1, 2))
    pairs = read_pairs(ours, theirs)
    figures = [metric.value(values, np.ones(200)) for values in (first, second)]
    files = [str(ours), str(theirs)]
    said = Foreign(tmp_path).ask("metric", definition=definition, records=files, seed=0)
    answered = judge(pairs, *figures, metric_of=Answered(pairs, said), tolerance=0.01)
    assert answered == judge(pairs, *figures, metric_of=metric, tolerance=0.01)
    gaps = np.linspace(1, 2, 200)
    with_margins = replace(pairs, margins=(gaps, gaps), sample_units=np.arange(200), changed=first != second)
    assert Answered(with_margins, said).changed().tolist() == (first != second).tolist()
    assert said == said_of(definition, tmp_path, files, 0)


def test_only_metrics_of_the_zoo_itself_are_made_by_the_check(root: Path) -> None:
    module(root, "mine", METRIC, "metrics")
    assert is_core_metric(metric_to_json(TopK()))
    for where in ("utils.metrics.mine", "utils.export.torch_export", "os", "json", str(root / "x.py"), "utils.metrics"):
        assert not is_core_metric({"class": f"{where}:Share", "options": {}})
    mine = {"class": "utils.metrics.mine:Share", "options": {}}
    assert Foreign(root).ask("metric", definition=mine, records=None, seed=0)["bounds"] == [0.0, 1.0]
    assert "utils.metrics.mine" not in sys.modules
    assert str(root / "contrib") not in sys.path
