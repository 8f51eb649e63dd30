"""A JSON result and its records take their places together, whenever the process is killed, and belong together."""

from __future__ import annotations

import hashlib
import json
import stat
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from support import DIGITS, RunPython

from engine import ConfigError, DataError
from utils.pipeline import valid
from utils.pipeline.flags.options import options
from utils.pipeline.resume.records import find_records, records_path
from utils.tasks.classification.task import CLASSIFICATION

MODEL = DIGITS / "digits_dyn.onnx"
DATA = DIGITS / "data" / "val"

KILLS = '''
"""Write the result of a second run over that of a first one, killed before the Nth call that changes the folder."""
import json, os, shutil, signal, sys
from pathlib import Path

import numpy as np

from utils.datasets.base import Batch
from utils.metrics.classification import TopK
from utils.pipeline.report.console import write_result
from utils.pipeline.flags.options import Options
from utils.pipeline.resume.records import find_records, record_writer
from utils.pipeline.resume.records.names import records_path
from utils.pipeline.report.report import Report

folder, name = Path(sys.argv[1]), sys.argv[2]
times = dict.fromkeys(("e2e_time", "avg_sps", "avg_inference_time", "avg_preprocess_time", "avg_postprocess"), 0.5)


def whole(value):
    """Write a result, and records of this value."""
    metric, result = TopK(), folder / name
    with_units = Batch([None] * 3, None, ["a", "b", "c"], None)
    writer = record_writer(records_path(result, metric), metric)
    writer.write(with_units, np.full(3, value, float))
    report = Report("top1", float(value), 3, 1, state=metric, records=writer.complete(), **times)
    opt = Options(json=result, ckpt=Path("m.onnx"), target="onnx", task="t", data_path=None)
    write_result(report, opt)


def killing(count):
    """Kill this process before its call number ``count`` that makes, renames or removes something."""
    left = [count]

    def hook(event, args):
        changing = event in ("os.rename", "os.remove", "os.chmod", "os.truncate")
        if changing or (event == "open" and isinstance(args[2], int) and args[2] & (os.O_CREAT | os.O_TRUNC)):
            left[0] -= 1
            if left[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


found, count = [], 0
while True:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    whole(1)
    child = os.fork()
    if child == 0:
        killing(count)
        whole(2)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    result = folder / name
    says = json.loads(result.read_text())["metric"] if result.exists() else None
    records = None if says is None else find_records(result).read_text().splitlines()[1].rpartition(",")[2]
    found.append((says, None if records is None else float(records)))
    whole(3)  # what is left in the folder is in nobody's way
    assert find_records(result).read_text().count(",3.0") == 3
    left = sorted(path.name for path in folder.iterdir() if not path.name.startswith(f"..{name}.new-"))
    assert left == sorted([name, records_path(result).name]), left
    if os.waitstatus_to_exitcode(status) == 0:
        break
    count += 1
print(json.dumps(found))
'''


@pytest.mark.parametrize("name", ["result.json", "lr0.1"])
def test_a_kill_at_any_call_leaves_no_result_with_other_records(
    name: str, tmp_path: Path, run_python: RunPython
) -> None:
    (tmp_path / "kills.py").write_text(KILLS)
    done = run_python(tmp_path / "kills.py", tmp_path / "out", name)
    assert (done.returncode, done.stderr) == (0, "")
    states = [tuple(state) for state in json.loads(done.stdout)]
    assert set(states) == {(1.0, 1.0), (None, None), (2.0, 2.0)}
    assert states == sorted(states, key=[(1.0, 1.0), (None, None), (2.0, 2.0)].index)
    assert len(states) > 6


_NAMES = st.text("ab.01_-é \n", min_size=1, max_size=12).filter(lambda name: name.strip(".") != "")


@given(_NAMES, _NAMES)
def test_records_of_two_results_have_two_names(one: str, other: str) -> None:
    first, second = records_path(Path(one)), records_path(Path(other))
    same = one.removesuffix(".json") == other.removesuffix(".json")  # refused before the run, see below
    assert (first == second) == same


@given(_NAMES, st.sampled_from(["", ".json"]))
def test_records_are_never_the_result(name: str, end: str) -> None:
    assert records_path(Path(name + end)).name != name + end


def run(*words: object) -> int:
    argv = ["--target", "onnx", "--workers", "0", "--streams", "1", *map(str, words)]
    return valid.main(None, CLASSIFICATION, argv=argv, ckpt=MODEL, data_path=DATA, batch_size=8, input_size=32)


def refused(*words: object) -> str:
    with pytest.raises(ConfigError) as caught:
        options(None, CLASSIFICATION, "valid", list(map(str, words)), ckpt=MODEL, data_path=DATA, input_size=32)
    return str(caught.value)


@pytest.fixture
def one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TECO_INFER_PIPELINES_MAX_STEPS", "1")


@pytest.mark.usefixtures("one_step")
def test_a_result_names_its_records_and_their_hash(tmp_path: Path) -> None:
    for name in ("lr0.1", "lr0.2"):
        assert run("--json", tmp_path / name) == 0
        said = json.loads((tmp_path / name).read_text())
        records = find_records(tmp_path / name)
        assert records is not None
        assert records.name == said["records"] == f"{name}.samples.csv"
        assert hashlib.sha256(records.read_bytes()).hexdigest() == said["records_sha256"]
    assert len(list(tmp_path.iterdir())) == 4
    assert "lr0.1.samples.csv" in refused("--json", tmp_path / "lr0.1.json")
    assert "lr0.1.samples.csv" in refused("--json", tmp_path / "lr0.1.samples.csv")
    (tmp_path / "lr0.1.samples.csv").write_bytes((tmp_path / "lr0.2.samples.csv").read_bytes() + b"\n")
    with pytest.raises(DataError, match=r"lr0\.1\.samples\.csv"):
        find_records(tmp_path / "lr0.1")


def test_records_of_older_results(tmp_path: Path) -> None:
    records, result = tmp_path / "r.samples.csv", tmp_path / "r.json"
    records.write_text("index,name,label,top1\n")
    said: dict[str, object]
    for said, found in (
        ({}, records),
        ({"records": "r.samples.csv"}, records),
        ({"records": "gone.samples.csv"}, records),
        ({"records": None}, None),
        ({"kind": "prediction"}, None),
        ({"records": "../r.samples.csv", "records_sha256": "0"}, None),
        ({"records": "gone.samples.csv", "records_sha256": "0"}, None),
    ):
        result.write_text(json.dumps(said))
        assert find_records(result) == found, said
    result.write_text("no JSON")
    assert find_records(result) == records


@pytest.mark.parametrize(
    ("given", "resumed"),
    [
        ("d/journal.jsonl", "d"),
        ("d/../d/journal.jsonl", "d"),
        ("link/journal.jsonl", "d"),
        ("d/journal-0of2.jsonl", "d"),
        ("d/journal.new", "d"),
        ("d/new", "d/new"),
        ("d/new", "d/new/inner"),
    ],
)
def test_a_result_cannot_replace_the_journal(given: str, resumed: str, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "link").symlink_to("d")
    assert given in refused("--json", tmp_path / given, "--resume", tmp_path / resumed)
    assert list((tmp_path / "d").iterdir()) == []


def test_a_result_next_to_the_journal(tmp_path: Path) -> None:
    for name in ("result.json", "journal.json", "journal-0of2.json"):
        argv = ["--json", str(tmp_path / name), "--resume", str(tmp_path)]
        options(None, CLASSIFICATION, "valid", argv, ckpt=MODEL, data_path=DATA, input_size=32)


def test_saved_answers_cannot_replace_records(tmp_path: Path) -> None:
    from utils.tasks.detection.task import DETECTION

    for name in ("r.samples.csv", "r.samples.npz", ".r.samples.csv.part"):
        words = ["--json", str(tmp_path / "r.json"), "--save_predictions", str(tmp_path / name)]
        with pytest.raises(ConfigError, match="records"):
            options(None, DETECTION, "valid", words, ckpt=MODEL, data_path=DATA)


@pytest.mark.parametrize(("umask", "mode"), [("077", 0o600), ("002", 0o664), ("022", 0o644)])
def test_permissions_of_new_files_follow_the_umask(
    umask: str, mode: int, tmp_path: Path, run_python: RunPython
) -> None:
    code = f"import os, runpy, sys\nos.umask(0o{umask})\nrunpy.run_path(sys.argv.pop(1), run_name='__main__')"
    words = ["--target", "onnx", "--json", tmp_path / "r.json", "--resume", tmp_path / "kept"]
    done = run_python("-c", code, DIGITS / "example_valid.py", *words, cwd=tmp_path, TECO_INFER_PIPELINES_MAX_STEPS="1")
    assert done.returncode == 0, done.stderr
    files = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*") if path.is_file()}
    assert files == dict.fromkeys(["r.json", "r.samples.csv", "journal.jsonl"], mode)


@pytest.mark.usefixtures("one_step")
def test_a_rewritten_file_keeps_its_permissions(tmp_path: Path) -> None:
    for _ in range(2):
        assert run("--json", tmp_path / "r.json") == 0
        modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("r.json", "r.samples.csv")]
        (tmp_path / "r.json").chmod(0o640)
        (tmp_path / "r.samples.csv").chmod(0o600)
    assert modes == [0o640, 0o600]
