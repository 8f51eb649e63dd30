"""``teco list``, ``teco info`` and ``teco run``, on the zoo and on small generated ones."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support import ROOT, RunPython

from engine import ConfigError
from toolkit.commands import info, list as listing, run
from toolkit.graph.inputs import model_file
from toolkit.zoo import find_model, load_zoo, summary

SCRIPT = "import os, sys\nprint(os.getcwd(), *sys.argv[1:])\nsys.exit(7)\n"
RUN = """
import sys
from pathlib import Path
from toolkit.commands.run import main
main(sys.argv[2:], Path(sys.argv[1]))
"""
CASE = """\
- case_name: {name}
  run_dir: TecoInference/{folder}
  run_export:
    run_file: export_onnx.py
    params:
      arch: small
  run_example_valid:
    run_file: example_valid.py
    params:
      ckpt: a.onnx
      batch_size: 64
      data_path: data/val
      target: {target}
      dtype: float16
      others:
        input_size: [224, 192]
  run_example_single:
    run_file: example_valid.py
    params: &one
      ckpt: a.onnx
      batch_size: 1
      data_path: data/val
      target: onnx
      dtype: float32
  run_example_multi:
    run_file: example_valid.py
    params: *one
"""


def add(root: Path, folder: str, *cases: str) -> Path:
    """Add a model whose scripts print their arguments and exit with 7."""
    path = root / folder
    (path / "data" / "val").mkdir(parents=True)
    for name in ("export_onnx.py", "example_valid.py", "example_single_batch.py"):
        (path / name).write_text(SCRIPT)
    config = root / ("contrib/model_config" if folder.startswith("contrib") else "model_config") / "model.yaml"
    config.parent.mkdir(parents=True, exist_ok=True)
    with config.open("a") as file:
        file.writelines(CASE.format(name=case, folder=folder, target="sdaa") for case in cases)
    return path


@pytest.fixture
def zoo(tmp_path: Path) -> Path:
    root = tmp_path / "zoo"
    add(root, "example/classification/one", "one")
    add(root, "example/detection/two", "two_a", "two_b")
    add(root, "contrib/example/speech/three")
    add(root, "contrib/example/speech/one")
    return root


def started(run_python: RunPython, zoo: Path, *argv: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return run_python("-c", RUN, zoo, *argv, cwd=cwd)


# ------------------------------------------------------------------------------------------------------------- list


def test_zoo_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert listing.main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["name", "domain", "place", "steps", "targets", "metric"]
    listed = [line.split()[:3] for line in lines[1:]]
    assert len(listed) == len(list(ROOT.glob("example/*/*/example_valid.py"))) >= 20
    assert ["digits", "classification", "core"] in listed
    assert listed == sorted(listed, key=lambda row: (row[1], row[0]))
    assert all("export valid single multi" in line and "sdaa" in line for line in lines[1:])


def test_words_filter(zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    listing.main(["speech", "contrib", "--json"], zoo)
    data = json.loads(capsys.readouterr().out)
    found = data["models"]
    assert (data["schema_version"], data["kind"]) == (1, "models")
    assert [model["path"] for model in found] == ["contrib/example/speech/one", "contrib/example/speech/three"]
    assert found[0]["steps"] == ["export", "valid", "single"]
    assert found[0]["cases"] == found[0]["targets"] == []
    with pytest.raises(ConfigError, match="'spech'"):
        listing.main(["spech"], zoo)


def test_targets_and_stored_metrics(zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stored = zoo / "example/classification/one/numerics.yaml"
    stored.write_text("metrics:\n- {case: one, target: sdaa, dtype: float16, metric: top-1, value: 0.9861}\n")
    listing.main(["--json", "classification"], zoo)
    (found,) = json.loads(capsys.readouterr().out)["models"]
    assert found["targets"] == ["onnx", "sdaa"]
    kept = {"case": "one", "target": "sdaa", "metric": "top-1", "value": 0.9861, "higher_is_better": True}
    assert found["metric"] == [kept]
    listing.main(["0.9861"], zoo)
    assert "0.9861 (sdaa)" in capsys.readouterr().out
    info.main(["example/classification/one"], zoo)
    assert "metric   one: top-1 0.9861 on sdaa\n" in capsys.readouterr().out
    stored.write_text("- no scorecard\n")
    with pytest.raises(ConfigError, match=r"numerics.yaml: is not a scorecard"):
        listing.main([], zoo)


def test_metric_of_each_case(zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stored = zoo / "example/classification/one/numerics.yaml"
    rows = "".join(f"- {{case: {case}, target: sdaa, metric: top-1, value: 0.5}}\n" for case in ("one", "full"))
    stored.write_text(f"metrics:\n{rows}")
    listing.main(["one"], zoo)
    assert "0.5 (sdaa, case one), 0.5 (sdaa, case full)" in capsys.readouterr().out


def test_lower_is_better_is_shown(zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stored = zoo / "example/classification/one/numerics.yaml"
    stored.write_text("metrics:\n- {case: one, target: sdaa, metric: wer, value: 0.04, higher_is_better: false}\n")
    listing.main(["0.04"], zoo)
    assert "0.04 (sdaa, lower is better)" in capsys.readouterr().out
    info.main(["example/classification/one"], zoo)
    assert "metric   one: wer 0.04 on sdaa (lower is better)\n" in capsys.readouterr().out


def test_equal_metrics_of_targets_are_merged(zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entries = [("cpu", 0.99444444), ("onnx", 0.99444444), ("sdaa", 0.99166667)]
    lines = "".join(f"- {{case: one, target: {target}, metric: top1, value: {value}}}\n" for target, value in entries)
    (zoo / "example/classification/one/numerics.yaml").write_text(f"metrics:\n{lines}")
    listing.main(["0.99"], zoo)
    assert "0.994444 (cpu onnx), 0.991667 (sdaa)" in capsys.readouterr().out


def test_invalid_case_is_a_warning(zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (zoo / "model_config/model.yaml").open("a") as file:
        file.write(CASE.format(name="bad", folder="example/classification/gone", target="sdaa"))
    assert listing.main([], zoo) == 0
    shown = capsys.readouterr()
    assert "example/classification/gone" in shown.err
    assert shown.err.startswith("warning: ")
    assert len(shown.out.splitlines()) == 5


def test_no_models(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no models under"):
        load_zoo(tmp_path)


# ----------------------------------------------------------------------------------------------------- finding by name


@pytest.mark.parametrize(
    ("name", "path", "case"),
    [
        ("two", "example/detection/two", None),
        ("detection/two", "example/detection/two", None),
        ("detection/two/", "example/detection/two", None),
        ("contrib/example/speech/one", "contrib/example/speech/one", None),
        ("contrib/example/speech/one/example_valid.py", "contrib/example/speech/one", None),
        ("speech/one", "contrib/example/speech/one", None),
        ("two_b", "example/detection/two", "two_b"),
    ],
)
def test_names(name: str, path: str, case: str | None, zoo: Path) -> None:
    model, found = find_model(name, load_zoo(zoo).models)
    assert (model.path, found.name if found else None) == (path, case)


def test_path_relative_to_current_folder(zoo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(zoo / "example" / "detection" / "two")
    assert find_model(".", load_zoo(zoo).models)[0].name == "two"


def test_unknown_and_ambiguous_names(zoo: Path) -> None:
    models = load_zoo(zoo).models
    with pytest.raises(ConfigError, match=r"'thre'; did you mean 'three'\?"):
        find_model("thre", models)
    with pytest.raises(
        ConfigError, match=r"'one' is ambiguous; .*: example/classification/one, contrib/example/speech/one"
    ):
        find_model("one", models)


# ------------------------------------------------------------------------------------------------------------- info


def test_info_of_digits(capsys: pytest.CaptureFixture[str]) -> None:
    assert info.main(["digits"]) == 0
    shown = capsys.readouterr().out
    for part in (
        "digits: A ResNet of 38 thousand parameters",
        "path     example/classification/digits (core)",
        "digits_dyn.onnx: input batch x 3 x 32 x 32 -> output batch x 10",
        "  digits valid: example_valid.py --ckpt digits_float16_dyn.onnx",
        "data/ (360 files",
        "--skip_postprocess",
    ):
        assert part in shown
    assert all(len(line) <= 160 for line in shown.splitlines())


def test_info_with_paths_beyond_path_max(zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    deeper(zoo / "example" / "classification" / "one")
    assert info.main(["example/classification/one"], zoo) == 0
    assert "example_valid.py" in capsys.readouterr().out


def deeper(folder: Path) -> None:
    """Nest folders until a path through them is longer than 4096 bytes."""
    handle = os.open(folder, os.O_RDONLY)
    for _ in range(20):
        os.mkdir("d" * 250, dir_fd=handle)
        inner = os.open("d" * 250, os.O_RDONLY, dir_fd=handle)
        os.close(handle)
        handle = inner
    os.close(handle)


def test_info_json_with_invalid_onnx(zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (zoo / "example/detection/two/bad.onnx").write_bytes(b"no")
    (zoo / "example/detection/two/README.md").write_text(
        "# Two\n\n## 1. 模型概述\n\n<!-- x -->\n\nIt\ncounts.\n\n## 2. X\n"
    )
    info.main(["two", "--json"], zoo)
    found = json.loads(capsys.readouterr().out)
    assert (found["schema_version"], found["kind"]) == (1, "model")
    assert found["summary"] == "It counts."
    assert "bad.onnx" in found["onnx"]["bad.onnx"]
    assert {run["case"] for run in found["runs"]} == {"two_a", "two_b"}
    assert summary(zoo / "none.md") == ""


# -------------------------------------------------------------------------------------------------------------- run


def test_flags_override_case_parameters(run_python: RunPython, zoo: Path) -> None:
    done = started(run_python, zoo, "example/classification/one", "valid", "--target", "onnx", "--batch_size=8")
    folder = zoo / "example/classification/one"
    arguments = "--ckpt a.onnx --data_path data/val --dtype float16 --input_size 224 192 --target onnx --batch_size=8"
    assert done.returncode == 7
    assert done.stdout == f"{folder} {arguments}\n"
    assert done.stderr == f"in example/classification/one: python example_valid.py {arguments}\n"


SEVERAL = """\
- case_name: reader
  run_dir: TecoInference/example/ocr/reader
  run_export: {run_file: export_onnx.py}
  run_example_valid: &step
    run_file: example_valid.py
    params: {ckpt: {det: a.onnx, rec: b.onnx}, batch_size: 1, target: onnx, dtype: float32}
  run_example_single: *step
  run_example_multi: *step
"""


def test_case_with_several_models(run_python: RunPython, zoo: Path, tmp_path: Path) -> None:
    folder = add(zoo, "example/ocr/reader")
    with (zoo / "model_config/model.yaml").open("a") as file:
        file.write(SEVERAL)
    done = started(run_python, zoo, "reader", "valid")
    own = "--ckpt det=a.onnx rec=b.onnx"
    assert done.stdout == f"{folder} {own} --batch_size 1 --target onnx --dtype float32\n"
    (tmp_path / "mine.onnx").touch()
    (folder / "a.onnx").touch()
    (tmp_path / "a.onnx").touch()  # the model's file has priority
    flags = ["--ckpt", "det=a.onnx", "rec=mine.onnx", "--data_path", "q=mine.onnx", "--x"]
    done = started(run_python, zoo, "reader", "valid", *flags, cwd=tmp_path)
    mine = tmp_path / "mine.onnx"
    assert done.stdout.split()[-6:] == ["--ckpt", "det=a.onnx", f"rec={mine}", "--data_path", f"q={mine}", "--x"]
    with pytest.raises(ConfigError, match=r"det example/ocr/reader/a\.onnx, rec"):
        model_file("reader", zoo)


def test_several_cases_need_case_flag(run_python: RunPython, zoo: Path) -> None:
    done = started(run_python, zoo, "two", "export")
    assert "example/detection/two has several cases: two_a, two_b; choose one with --case NAME" in done.stderr
    for argv in (["two_b", "export"], ["two", "export", "--case", "two_b"], ["--case=two_b", "two", "export"]):
        done = started(run_python, zoo, *argv)
        assert (done.returncode, done.stdout.split()[1:]) == (7, ["--arch", "small"])


def test_model_without_case_runs(run_python: RunPython, zoo: Path) -> None:
    done = started(run_python, zoo, "three", "single", "--x")
    assert (done.returncode, done.stdout.split()[1:]) == (7, ["--x"])


def test_paths_relative_to_current_folder(run_python: RunPython, zoo: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.png").touch()
    (tmp_path / "onnx").mkdir()  # a target may also be the name of a folder
    flags = [
        "--data_path",
        "mine.png",
        "--json=r.json",
        "--save",
        "drawn",
        "--ckpt",
        "a.onnx",
        "--target",
        "onnx",
        "-v",
    ]
    done = started(run_python, zoo, "three", "valid", *flags, cwd=tmp_path)
    words = done.stdout.split()[1:]
    assert words == [
        *("--data_path", str(tmp_path / "mine.png"), f"--json={tmp_path / 'r.json'}"),
        *("--save", str(tmp_path / "drawn"), "--ckpt", "a.onnx", "--target", "onnx", "-v"),
    ]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["three", "valdi"], "unknown step 'valdi'; did you mean 'valid'? steps: export, valid, single, multi"),
        (["three", "multi"], "contrib/example/speech/three has no step 'multi'; it has: export, valid, single"),
        (["two", "valid", "--case", "two_c"], "--case two_c: example/detection/two has no such case; did you mean"),
        (["three", "valid", "--case", "x"], "cases: none; add one to contrib/model_config/model.yaml"),
        (["two", "valid", "--case"], "--case needs the name of a case"),
    ],
)
def test_wrong_arguments(argv: list[str], message: str, zoo: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        run.main(argv, zoo)
    assert message in str(caught.value)


def test_help_of_script(run_python: RunPython) -> None:
    done = run_python("-m", "toolkit.cli", "run", "digits", "valid", "--help")
    assert done.returncode == 0
    assert "usage: example_valid.py" in done.stdout


def test_signal_reaches_script(zoo: Path) -> None:
    script = zoo / "contrib/example/speech/three/example_valid.py"
    script.write_text("import time\nprint('ready', flush=True)\ntime.sleep(60)\n")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", RUN, str(zoo), "three", "valid"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=zoo, env=environment, **pipes) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.terminate()
        assert process.wait(timeout=20) == -signal.SIGTERM


def test_model_runs_by_name(run_python: RunPython) -> None:
    done = run_python("-m", "toolkit.cli", "run", "digits", "valid", "--target", "onnx", "--dtype", "float32")
    assert done.returncode == 0
    assert "eval_metric 0.994444" in done.stdout
