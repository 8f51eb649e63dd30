"""``teco train profile``: profiles read and compared, scripts run, and errors."""

from __future__ import annotations

import copy
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support import ROOT

from engine import ConfigError, DataError, TecoInferError
from tecoinfer_modelzoo.cache import cache_folder
from toolkit.commands.profile_train import main
from toolkit.training.profile import fixes
from toolkit.training.profile.bottlenecks import bottlenecks
from toolkit.training.profile.record import checked
from toolkit.training.profile.report import lead, whole

CACHE = cache_folder("torch_sdaa")
"""Read before a test sets its own cache folder: the compiled extension is kept for all runs."""

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None or not any(map(shutil.which, (os.environ.get("CXX", "g++"), "c++"))),
    reason="torch is not installed, or there is no C++ compiler",
)

TRAIN = """
import sys
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, 4)).to("cuda")
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for step in range(200):
    optimizer.zero_grad()
    out = model(torch.randn(8, 16).to("cuda"))
    if "bad" in sys.argv:
        seen = [value.item() for value in out[:, 0]]
    out.mean().backward()
    optimizer.step()
print("the end")
"""


def launch(op: str, seconds: float, count: int = 4, line: int = 7, **others: Any) -> dict[str, Any]:
    """Return a row as the profiler writes it: one launch in each of ``count`` steps."""
    row = {
        "op": op,
        "inputs": ["float32[8, 16]"],
        "outputs": ["float32[8]"],
        "device": "sdaa:0",
        "engine": "compute",
        "waits": False,
        "phase": "forward",
        "node": "",
        "module": "",
        "file": "/train.py",
        "line": line,
        "function": "<module>",
        "count": count,
        "by_step": {str(step): 1 for step in range(count)},
        "seconds": seconds,
        "assumed": 0.0,
        "launch_seconds": 3e-5 * count,
        "arithmetic_seconds": 0.0,
        "memory_seconds": seconds,
        "flops": 0.0,
        "bytes": 0,
        "host_seconds": 1e-4,
    }
    return {**row, **others}


def profile(*launches: dict[str, Any]) -> dict[str, Any]:
    names = ("op", "inputs", "outputs", "engine", "count", "seconds", "host_seconds", "flops", "bytes")
    host = {"wall": 1.0, "framework": 0.7, "runtime": 0.2, "launch": 0.1, "runtime_calls": {}}
    parts = {"dispatcher": 0.2, "autograd": 0.1, "python": 0.4}
    device = {"device": "sdaa:0", "simulated": 0.5, "busy": 0.5, "idle": 0.0, "compute": 0.4, "copies": 0.1}
    return {
        "schema_version": 1,
        "kind": "training profile",
        "torch": "2.13.0",
        "card": "T1",
        "steps": 4,
        "dropped": 0,
        "host": {**host, "framework_parts": parts},
        "devices": [{**device, "overlap": 0.0, "launches": 9}],
        "launches": list(launches),
        "op_info": [{**{name: row[name] for name in names}, "phases": {"forward": 4}} for row in launches],
        "fresh": [],
        "synchronisations": [],
        "compilations": [],
        "script": "train.py",
    }


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """Return two profiles; the second no longer has a slow operator."""
    before = profile(launch("aten::sort", 4e-3), *(launch(f"aten::op{i}", 1e-3, line=20 + i) for i in range(6)))
    after = profile(launch("aten::topk", 4e-4), *(launch(f"aten::op{i}", 1e-3, line=20 + i) for i in range(6)))
    for name, data in (("before", before), ("after", after)):
        (tmp_path / f"{name}.json").write_text(json.dumps(data), encoding="utf-8")
    return tmp_path / "before.json", tmp_path / "after.json"


def test_two_profiles_are_compared_per_step(files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    out = files[0].with_name("against.json")
    assert main(["--compare", *map(str, files), "--json", str(out)]) == 0
    said = capsys.readouterr().out
    assert "a step: 2.5 ms before, 1.6 ms now, 36.0% less (simulated)" in said
    assert "gone: slow operator at /train.py:7 (aten::sort)" in said
    found = json.loads(out.read_text(encoding="utf-8"))
    assert found["schema_version"] == 1
    assert [change["name"] for change in found["against"]["operators"]][:2] == ["aten::sort", "aten::topk"]


@pytest.mark.parametrize(
    ("optimizer", "wanted", "unwanted"),
    [
        ("", "fused=True", "has no fused form"),
        ("AdamW", "foreach=True or fused=True", "has no fused form"),
        ("RMSprop", "foreach=True (RMSprop has no fused form)", "foreach=True or fused=True"),
        ("Muon", "write the step of Muon with torch._foreach_", "foreach=True"),
        ("Lion", "write the step of Lion with torch._foreach_", "foreach=True"),
    ],
)
def test_the_advice_for_an_optimizer_exists_for_its_class(optimizer: str, wanted: str, unwanted: str) -> None:
    steps = [
        launch(
            f"aten::op{i}", 4e-4, 40, phase="update", node=optimizer, launch_seconds=4e-4, by_step={"1": 20, "2": 20}
        )
        for i in range(4)
    ]
    loss = launch("aten::sum", 4e-4, 40, launch_seconds=4e-4)  # `loss.backward(); optimizer.step()`: of the same line
    for rows in (steps, [*steps, loss]):
        (one,) = bottlenecks(checked(profile(*rows), "x"))
        assert one.kind == fixes.GAPS
        assert wanted in one.fix
        assert unwanted not in one.fix


@pytest.mark.parametrize(("launching", "bound"), [(3.9e-4, True), (1e-5, False)])
def test_a_tiny_network_is_bound_by_launches(launching: float, bound: bool) -> None:
    rows = [launch(f"aten::op{i}", 4e-4, line=20 + i, launch_seconds=launching) for i in range(8)]
    found = checked(profile(*rows), "x")
    assert bottlenecks(found) == []
    assert ("bound by launches" in lead(found, [])) is bound
    assert whole(found, []).data["launch_share"] == (1.0 if bound else 0.0)


def test_a_profile_compared_with_itself_has_no_difference(files: tuple[Path, Path], capsys: Any) -> None:
    assert main(["--compare", str(files[0]), str(files[0])]) == 0
    assert "now, the same (simulated)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "--compare A.json B.json"),
        (["none.py"], "none.py is not a file"),
        (["--compare", "none.json", "none.json"], "none.json is not a file; make one: teco train profile"),
        (["a.py", "--compare", "a.json", "b.json"], "--compare takes two JSON files"),
        (["a.py", "--steps", "0"], "--steps"),
        (["a.py", "--stepz", "1"], "--stepz"),
    ],
)
def test_invalid_arguments_are_errors(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises((TecoInferError, SystemExit)) as found:
        main(words)
    assert message in f"{found.value} {capsys.readouterr().err}"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "profile"}, "is not a profile of a training"),
        ({"schema_version": 7}, "schema version 7, expected 1"),
        ({"launches": None}, "its field 'launches' is missing"),
        ({"launches": [{"op": "aten::mm"}]}, "a row of 'launches' is damaged"),
        ({"fresh": [3]}, "a row of 'fresh' is damaged"),
        ({"calls": 3}, "a row of 'calls' is damaged"),
        ({"compilations": [{"reason": "size"}]}, "a row of 'compilations' is damaged"),
        ({"synchronisations": [{"file": "a", "line": 1, "by_step": 2}]}, "a row of 'synchronisations' is damaged"),
        ({"passes": {"1": []}}, "a field is damaged"),
        ({"launches": [launch("aten::mm", 1e-3) | {"by_step": {"1": {}}}]}, "a row of 'launches' is damaged"),
        ({"launches": [launch("aten::mm", 1e-3) | {"kernels": 3}]}, "a field is damaged"),
    ],
)
def test_invalid_profiles_are_errors(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    file = tmp_path / "other.json"
    file.write_text(json.dumps(profile(launch("aten::mm", 1e-3)) | change), encoding="utf-8")
    with pytest.raises(DataError, match=re.escape(message)):
        main(["--compare", str(file), str(file)])
    file.write_text('{"kind": ', encoding="utf-8")
    with pytest.raises(DataError, match=r"other\.json .*readable JSON"):
        main(["--compare", str(file), str(file)])


def test_the_first_step_is_not_judged_and_the_order_of_findings_is_fixed() -> None:
    data = profile(
        launch("aten::sort", 1.0, count=1, line=3), *(launch(f"aten::op{i}", 1e-3, line=20 + i) for i in range(9))
    )
    assert bottlenecks(checked(data, "first")) == []
    data = copy.deepcopy(data)
    data["synchronisations"] = [
        {"file": "/train.py", "line": 9, "function": "f", "count": 8, "by_step": {str(step): 2 for step in range(4)}}
    ]
    (one,) = bottlenecks(checked(data, "first"))
    assert (one.kind, one.source, one.per_step) == (fixes.COPIES, "/train.py:9", 2.0)


def teco(folder: Path, *words: object) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    if CACHE is not None:
        env["TECO_CACHE_DIR"] = str(CACHE.parent)
    command = [sys.executable, "-m", "toolkit.cli", "train", "profile", *map(str, words)]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.torch
@needs_torch
def test_a_script_is_profiled_untouched(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN, encoding="utf-8")
    outputs = [f"--{form}={tmp_path / 'out'}.{form}" for form in ("json", "csv", "html", "trace")]
    done = teco(tmp_path, "train.py", "--steps", 5, *outputs, "--", "bad")
    assert done.returncode == 0, done.stderr
    assert "the end" not in done.stderr  # it was ended after the steps
    assert re.search(r"^copies: the host reads from the device 8 times a step, .* at train.py:13 ", done.stdout, re.M)
    assert f"fix: {fixes.READS}" in done.stdout
    found = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert (found["schema_version"], found["steps"], found["ended"]) == (1, 5, "steps")
    assert [one["kind"] for one in found["bottlenecks"]] == [fixes.COPIES]
    host = found["host"]
    assert host["framework"] + host["runtime"] + host["launch"] == pytest.approx(host["wall"], rel=0.02)
    assert "aten::addmm" in (tmp_path / "out.csv").read_text(encoding="utf-8")
    page = (tmp_path / "out.html").read_text(encoding="utf-8")
    assert fixes.READS in page
    assert "http" not in re.sub(r'xmlns="[^"]*"', "", page).replace("http-equiv", "")
    assert json.loads((tmp_path / "out.trace").read_text(encoding="utf-8"))["traceEvents"]

    again = teco(tmp_path, "train.py", "--steps", 5, "--against", "out.json")
    assert again.returncode == 0, again.stderr
    assert "gone: copies at" in again.stdout
    assert "none of the four classic bottlenecks; a step takes" in again.stdout


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.torch
@needs_torch
@pytest.mark.parametrize(
    ("script", "words", "said"),
    [
        ("raise ValueError('no data\\nhere')", (), "train.py failed after 0 steps: ValueError: no data"),
        ("import torch; torch.ones(3).exp()", (), "train.py launched nothing on the card"),
        ("import os; os.abort()", (), "train.py ended its process: "),
        ("import time; time.sleep(60)", ("--timeout", 3), "took longer than 3 s and was ended"),
    ],
)
def test_a_script_that_cannot_be_profiled_is_one_line(
    script: str, words: tuple[object, ...], said: str, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(script, encoding="utf-8")
    done = teco(tmp_path, "train.py", *words)
    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]
    assert said in last
    assert "toolkit" not in done.stderr


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.torch
@needs_torch
@pytest.mark.parametrize(
    ("last", "words", "said"),
    [
        ("raise ValueError('no data')", (), "failed after 2 steps: ValueError: no data; what is shown is what it did"),
        pytest.param(
            *("time.sleep(600)", ("--timeout", 60)),  # long, as the imports of a busy machine are
            "failed after 2 steps: it took longer than --timeout; what is shown is",
            marks=pytest.mark.long,
        ),
    ],
)
def test_the_profile_before_a_failure_is_kept(last: str, words: tuple[object, ...], said: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(FAILS + last, encoding="utf-8")
    done = teco(tmp_path, "train.py", *words, "--json", tmp_path / "out.json", "--trace", tmp_path / "out.trace")
    assert done.returncode == 2
    assert said in done.stderr.splitlines()[-1]
    assert "aten::mean" in done.stdout
    kept = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert (kept["steps"], bool(kept["failed"])) == (2, True)
    assert (tmp_path / "out.trace").is_file()


THREAD = """\
import threading
import torch
import torch_sdaa


def train():
    weight = torch.nn.Parameter(torch.ones(4, device="sdaa"))
    optimizer = torch.optim.SGD([weight], 0.1)
    for _ in range(9):
        optimizer.step(lambda: (weight * 2).mean())


thread = threading.Thread(target=train)
thread.start()
thread.join()
print("joined")
"""


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.torch
@needs_torch
def test_a_training_thread_ends_without_output(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(THREAD, encoding="utf-8")
    done = teco(tmp_path, "train.py", "--steps", 3, "--json", "out.json")
    assert done.returncode == 0, done.stderr
    assert "joined" in done.stderr
    assert "Traceback" not in done.stderr
    kept = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert kept["steps"] == 3
    assert {row["phase"] for row in kept["launches"]} == {"forward"}


FAILS = """\
import time
import torch
import torch_sdaa
weight = torch.nn.Parameter(torch.ones(4, device="sdaa"))
optimizer = torch.optim.SGD([weight], 0.1)
for _ in range(2):
    (weight * 2).mean().backward()
    optimizer.step()
"""


def test_a_missing_reference_profile_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"nothing\.json is not a file"):
        main(["x.py", "--against", "nothing.json"])
