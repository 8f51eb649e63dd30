from __future__ import annotations

import argparse
import json
import shutil
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support import RunPython, SaveOnnx, made

from engine import ConfigError, DataError, Engine, EngineError, InputError, ModelError, PassError, TargetError
from utils.pipeline import answers, cli
from utils.pipeline.flags.options import Options, limits, options as parse
from utils.pipeline.report.console import finish, print_engines
from utils.pipeline.report.report import SCHEMA_VERSION, Report
from utils.pipeline.run.loops import Answer
from utils.pipeline.run.pipeline import Failure
from utils.pipeline.session import open_engines
from utils.tasks.base import Artifact, str2bool
from utils.tasks.classification.task import CLASSIFICATION, Classification
from utils.tasks.model import Model

LIMIT, WARMUP = "TECO_INFER_PIPELINES_MAX_STEPS", "TECO_INFER_PIPELINES_WARMUP_STEPS"


def options(*argv: object, script: str = "valid", **defaults: Any) -> Options:
    values = {"ckpt": Path("m.onnx"), "data_path": Path("data"), "batch_size": 4, "input_size": 32} | defaults
    return parse("test", CLASSIFICATION, script, list(map(str, argv)), **values)


@contextmanager
def opened(opt: Options) -> Iterator[Engine]:
    task = made(CLASSIFICATION, opt)
    with open_engines(task) as engines:
        (engine,) = engines.values()
        print_engines(task, engines)
        yield engine


def report(**changes: Any) -> Report:
    times = dict.fromkeys(("e2e_time", "avg_sps", "avg_inference_time", "avg_preprocess_time", "avg_postprocess"), 0.5)
    return Report(**({"metric_name": "top1", "metric": 0.75, "samples": 4, "steps": 1} | times | changes))


# --------------------------------------------------------------------------------------------------------------- flags


def test_defaults() -> None:
    opt = options()
    assert (opt.target, opt.dtype, opt.pass_path, opt.topk, opt.workers) == ("sdaa", None, "default_pass.py", 1, None)
    assert (opt.skip_postprocess, opt.verbose, opt.json, opt.save) == (False, False, None, None)
    assert Classification(opt).given_size == (32, 32)


def test_every_flag_of_the_historical_scripts() -> None:
    opt = options(
        *("--ckpt", "x.onnx", "--data_path", "d", "--input_name", "input", "--batch_size", 8, "--input_size", 24, 48),
        *("--target", "onnx", "--dtype", "float32", "--pass_path", "none", "--topk", 5),
        *("--skip_postprocess", "true", "--verbose", "False"),
    )
    assert (opt.ckpt, opt.data_path, opt.input_name, Classification(opt).given_size) == (
        Path("x.onnx"),
        Path("d"),
        ["input"],
        (24, 48),
    )
    assert (opt.skip_postprocess, opt.verbose) == (True, False)
    assert options("--verbose", "--skip_postprocess").verbose is True


@pytest.mark.parametrize("text", ["yes", "TRUE", "t", "y", "1"])
def test_true_words(text: str) -> None:
    assert str2bool(text) is True


@pytest.mark.parametrize("text", ["no", "False", "f", "N", "0"])
def test_false_words(text: str) -> None:
    assert str2bool(text) is False


def test_neither() -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="'maybe' is not a truth value"):
        str2bool("maybe")


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["--batch_size", 0], "--batch_size 0 must be at least 1"),
        (["--topk", -1], "--topk -1 must be at least 1"),
        (["--input_size", 0], r"--input_size \[0\] must be one or two positive numbers"),
        (["--input_size", 1, 2, 3], r"--input_size \[1, 2, 3\] must be one or two"),
        (["--workers", -1], "--workers -1 must be at least 0"),
        (["--json", "gone/r.json"], r"--json gone.r\.json: folder gone does not exist; create it first"),
    ],
)
def test_invalid_values(argv: list[object], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        options(*argv)


def test_raw_outputs_are_not_drawn() -> None:
    with pytest.raises(ConfigError, match=r"--save .*--skip_postprocess"):
        options("--save", "drawn", "--skip_postprocess", script="single")


@pytest.mark.parametrize("argv", [["--batch_size", "x"], ["--dtype", "int4"], ["--verbose", "maybe"], ["--nothing"]])
def test_argparse_refuses(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        options(*argv)
    assert caught.value.code == 2
    assert "usage:" in capsys.readouterr().err


def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    default = {"workers": None, "worker_mode": "thread", "on_step": None}
    assert limits(options()) == {"max_steps": -1, "warmup": 0, **default}
    monkeypatch.setenv(LIMIT, "3")
    monkeypatch.setenv(WARMUP, "1")
    assert limits(options("--verbose", "--workers", 0, "--worker_mode", "process")) == {
        "max_steps": 3,
        "warmup": 1,
        "workers": 0,
        "worker_mode": "process",
        "on_step": print,
    }
    monkeypatch.setenv(LIMIT, "many")
    with pytest.raises(ConfigError, match=f"environment variable {LIMIT}='many' must be a whole number"):
        limits(options())


# --------------------------------------------------------------------------------------------------------------- open


def test_open_binds_an_image_input_per_spa(
    save_onnx: SaveOnnx, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = save_onnx("g (float[N,3,H,W] x) => (float[N,3,H,W] y) { y = Relu(x) }")
    monkeypatch.setenv("MAX_ENGINE_NUMS", "3")
    with opened(options("--input_size", 8, 9, "--batch_size", 10, "--pass_path", "none", ckpt=path)) as engine:
        assert engine.spec.input_size == ((None, None, 8, 9),)
        assert engine.spec.pass_path is None
        assert engine(np.zeros((10, 3, 8, 9), np.float16)).shape == (10, 3, 8, 9)
    out = capsys.readouterr().out
    assert out == f"target sdaa: {engine.describe()}\n"
    assert "3 SPA x batch 4" in out


def test_pass_files_are_found(save_onnx: SaveOnnx, tmp_path: Path) -> None:
    path = save_onnx("g (float[N,3,H,W] x) => (float[N,3,H,W] y) { y = Relu(x) }")
    (tmp_path / "own.py").write_text("need_convert = False")
    for name, end in (("default_pass.py", "passes/default_pass.py"), (tmp_path / "own.py", "own.py")):
        with opened(options("--pass_path", name, "--target", "null", ckpt=path)) as engine:
            assert engine.spec.pass_path.as_posix().endswith(end)
    opt = options("--pass_path", "gone.py", ckpt=path)
    with pytest.raises(PassError, match=r"gone\.py does not exist"), opened(opt):
        pass


@pytest.mark.parametrize("rank", ["abc", "5", "-2"])
def test_an_invalid_rank_is_an_error(rank: str, save_onnx: SaveOnnx, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", rank)
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    opt = options("--target", "null", ckpt=save_onnx("g (float[N,3,H,W] x) => (float[N,3,H,W] y) { y = Relu(x) }"))
    with pytest.raises(ConfigError, match="OMPI_COMM_WORLD_RANK"), opened(opt):
        pass


# ------------------------------------------------------------------------------------------------------ finish and show


def test_finish(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    opt = options("--json", tmp_path / "r.json")
    assert finish(report(), opt) == 0
    out, err = capsys.readouterr()
    assert out.splitlines() == report().closing_lines()
    assert err == ""
    data = json.loads((tmp_path / "r.json").read_text())
    assert {
        "schema_version": SCHEMA_VERSION,
        "kind": "evaluation",
        "target": "sdaa",
        "provider": "built-in",
        "model": "m.onnx",
    }.items() <= data.items()


def test_finish_reports_failures(capsys: pytest.CaptureFixture[str]) -> None:
    failures = [Failure(f"{i}.png", f"{i}.png: is empty" if i else "a text file") for i in range(25)]
    assert finish(report(failures=failures, nan_inputs=["n.png", "m.png"], finished=False), options()) == 1
    out, err = capsys.readouterr()
    assert out.splitlines()[-2:] == report().closing_lines()
    assert out.startswith("stopped after 1 steps (TECO_INFER_PIPELINES_MAX_STEPS)")
    lines = err.splitlines()
    assert lines[0].startswith("2 of 4 samples have NaN in their input (n.png, m.png): look at the data")
    assert lines[1:3] == ["0.png: a text file", "1.png: is empty"]
    assert lines[-1] == "25 samples could not be run (5 not listed)"
    assert len(lines) == 22


def test_a_nan_metric_is_not_a_success(capsys: pytest.CaptureFixture[str]) -> None:
    assert finish(report(metric=float("nan")), options()) == 1
    out, err = capsys.readouterr()
    assert out.splitlines()[-2] == "eval_metric nan"
    assert err.startswith("top1 is NaN, and no output is: look at")
    assert finish(report(metric=float("inf")), options()) == 0  # such as a PSNR of equal images


def shown(found: Iterable[Answer], opt: Options, failures: list[Failure]) -> int:
    def artifact(sample: Any, prediction: Any) -> Artifact:
        return Classification(opt).show(sample, prediction)

    return answers.Session(made(CLASSIFICATION, opt, Model(Path("m.onnx"))), opt, failures).show(found, artifact)


def test_show(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Image.new("RGB", (8, 8), (255, 0, 0)).save(tmp_path / "a.png")
    answer = [{"score": np.float32(0.5), "label": "red"}, {"score": float("nan"), "label": "green"}]
    opt = options("--json", tmp_path / "r.json", "--save", tmp_path / "drawn", script="single", data_path=tmp_path)
    assert shown([Answer(str(tmp_path / "a.png"), answer, tmp_path / "a.png")], opt, []) == 0
    assert (tmp_path / "drawn" / "a.png").is_file()
    assert capsys.readouterr().out.splitlines()[0] == "a.png  red  0.500  green  nan"
    data = json.loads((tmp_path / "r.json").read_text(), parse_constant=pytest.fail)
    assert data.keys() == {
        *("schema_version", "kind", "target", "provider", "model", "task", "answers", "failures", "environment"),
        *("nan_inputs", "nan_outputs", "int8", "warning_counts", "figures", "finished"),
    }
    assert data["finished"] is True
    assert data["answers"][0]["answer"] == [{"score": 0.5, "label": "red"}, {"score": None, "label": "green"}]


def test_the_json_of_an_aborted_run_is_marked(tmp_path: Path) -> None:
    def broken() -> Iterator[Answer]:
        yield Answer("a.png", [{"label": "cat", "score": 0.5}])
        raise EngineError("the card is gone")

    with pytest.raises(EngineError):
        shown(broken(), options("--json", tmp_path / "r.json", script="multi"), [])
    data = json.loads((tmp_path / "r.json").read_text())
    assert (len(data["answers"]), data["finished"]) == (1, False)


def test_line_breaks_in_names_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    shown([Answer("a\nb\x1b[2J.png", [{"label": "cat", "score": 0.5}])], options(script="single"), [])
    assert capsys.readouterr().out == "a\\nb\\x1b[2J.png  cat  0.500\n"


def test_line_breaks_in_labels_are_escaped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    image = tmp_path / "a\neval_metric 1.png"
    Image.new("RGB", (8, 8)).save(image)
    answer = Answer(str(image), [{"label": "cat\neval_metric 1", "score": 0.5}], image)
    shown([answer], options("--save", tmp_path / "drawn", script="multi", data_path=tmp_path), [])
    lines = capsys.readouterr().out.splitlines()
    assert (len(lines), [line for line in lines if line.startswith("eval_metric")]) == (3, [])


@pytest.mark.parametrize("encoding", ["ascii:strict", "utf-8:strict"])
def test_names_missing_in_the_terminals_encoding(run_python: RunPython, encoding: str) -> None:
    code = "from utils.pipeline import cli; cli.run(lambda: print('b\\udcff \\u65e5.png  7') or 0)"
    done = run_python("-c", code, PYTHONIOENCODING=encoding)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("b\\udcff ")
    assert done.stdout.endswith(".png  7\n")


def test_show_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    bad, good = [Failure("b.png", "is empty")], [Answer("a.png", [{"label": "cat", "score": 0.5}])]
    opt = options(script="multi")
    assert shown(good, opt, []) == 0
    assert "1 samples in" in capsys.readouterr().out
    assert shown(good, opt, bad) == 1
    assert "1 samples, 1 could not be run, in" in capsys.readouterr().out
    assert shown([], opt, bad) == 2  # nothing at all could be run
    with pytest.raises(ConfigError, match="data holds nothing to run"):
        shown([], opt, [])
    assert "b.png: is empty" in capsys.readouterr().err


def test_raw_answers() -> None:
    one, two = np.array([[1.0, 3.0], [2.0, 5.0]]), np.zeros((2, 1, 4), np.float16)
    first, second = answers.raw([one, two])
    assert first == {
        "outputs": [
            {"shape": [2], "min": 1.0, "max": 3.0, "values": [1.0, 3.0]},
            {"shape": [1, 4], "min": 0.0, "max": 0.0, "values": [0.0] * 4},
        ],
    }
    assert answers.raw(one)[1]["outputs"] == second["outputs"][:1]
    assert answers.raw(np.zeros((2, 0)))[0]["outputs"][0]["shape"] == [0]


def test_raw_answers_with_another_batch_axis() -> None:
    steps, size = np.arange(12.0).reshape(4, 3), np.float32([7])
    found = answers.raw([steps, size], axes=[1, None])
    assert [one["outputs"][0] for one in found] == [
        {"shape": [4], "min": first, "max": first + 9, "values": [first, first + 3, first + 6, first + 9]}
        for first in (0.0, 1.0, 2.0)
    ]
    assert all(one["outputs"][1] == {"shape": [1], "min": 7.0, "max": 7.0, "values": [7.0]} for one in found)


@pytest.mark.parametrize("outputs", [{"boxes": np.zeros(2)}, [[np.zeros((2, 3))]], [np.zeros(2), np.zeros(3)], []])
def test_raw_outputs_without_rows_are_an_error(outputs: Any) -> None:
    with pytest.raises(ConfigError, match=r"^--skip_postprocess: .*; leave it out$"):
        answers.raw(outputs)


# ----------------------------------------------------------------------------------------------------------------- run


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], int]], Any]:
    """Return a function that runs a main through ``cli.run`` and returns the exit code."""
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)

    def run(main: Callable[[], int]) -> Any:
        with pytest.raises(SystemExit) as caught:
            cli.run(main)
        return caught.value.code

    return run


@pytest.mark.parametrize("code", [0, 1, 2])
def test_run_exits_with_the_code_of_main(code: int, ended: Callable[..., Any]) -> None:
    assert ended(lambda: code) == code


@pytest.mark.parametrize("error", [ConfigError, DataError, EngineError, InputError, ModelError, PassError, TargetError])
def test_run_shows_errors_as_one_line(
    error: type[Exception], ended: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    def main() -> int:
        raise error("m.onnx is empty; export it again")

    assert ended(main) == 2
    assert capsys.readouterr().err == "error: m.onnx is empty; export it again\n"


def test_run_interrupted(ended: Callable[..., Any], capsys: pytest.CaptureFixture[str]) -> None:
    def main() -> int:
        raise KeyboardInterrupt

    assert ended(main) == 130
    assert capsys.readouterr().err == "interrupted\n"


@pytest.mark.parametrize(
    "error", [ZeroDivisionError(), BrokenPipeError(32, "Broken pipe"), SystemExit(0), SystemExit()]
)
def test_unexpected_errors_give_one_line_and_exit_code_2(
    error: BaseException, ended: Callable[..., Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def main() -> int:
        raise error

    assert ended(main) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{Path(__file__).name}:" in line
    assert type(error).__name__ in line
    monkeypatch.setenv("TECO_TRACEBACK", "1")
    assert ended(main) == 2
    said = capsys.readouterr().err
    assert said.startswith("Traceback (most recent call last)")
    assert said.endswith(f"{line}\n")


def test_warnings_are_one_line(run_python: RunPython) -> None:
    done = run_python(
        "-c", "import warnings\nfrom utils.pipeline import cli\ncli.run(lambda: warnings.warn('careful') or 0)"
    )
    assert (done.returncode, done.stderr) == (0, "warning: careful\n")


# --------------------------------------------------------------------------------------------------- whole scripts


def script(root: Path, name: str) -> Path:
    return root / "example" / "classification" / "digits" / f"example_{name}.py"


@pytest.mark.slow
def test_a_reader_that_closes_the_pipe(root: Path, run_python: RunPython) -> None:
    """As in ``example_multi_batch.py | head -1``, with more output than a pipe holds."""
    code = (
        "import subprocess, sys\n"
        "child = '''from utils.pipeline import cli\\n"
        "def main():\\n"
        "    for i in range(100000): print(i)\\n"
        "    return 0\\n"
        "cli.run(main)'''\n"
        "p = subprocess.Popen([sys.executable, '-c', child], stdout=-1, stderr=-1, text=True)  # PIPE\n"
        "p.stdout.readline(); p.stdout.close()\n"
        "print(repr(p.stderr.read()), p.wait())"
    )
    assert run_python("-c", code).stdout == "'' 0\n"


def test_a_folder_with_bad_files(root: Path, tmp_path: Path, run_python: RunPython) -> None:
    source = root / "example" / "classification" / "digits" / "data" / "val"
    for label in ("3", "7"):
        shutil.copytree(source / label, tmp_path / "val" / label)
    good = len(list(tmp_path.glob("val/*/*.png")))
    bad = tmp_path / "val" / "3"
    (bad / "empty.png").write_bytes(b"")
    (bad / "text.png").write_text("hello")
    whole = next(bad.glob("0*.png")).read_bytes()
    (bad / "short.png").write_bytes(whole[: len(whole) // 2])
    (bad / "notes.txt").write_text("hello")
    (bad / "bomb.ppm").write_bytes(b"P6\n30000 30000\n255\n")
    done = run_python(
        *(script(root, "valid"), "--data_path", tmp_path / "val", "--target", "onnx", "--json", tmp_path / "r.json")
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1] == "5 samples could not be run"
    for name in ("empty.png", "text.png", "short.png", "notes.txt", "bomb.ppm"):
        assert name in done.stderr
    data = json.loads((tmp_path / "r.json").read_text())
    assert data["samples"] == good
    assert {Path(f["name"]).name for f in data["failures"]} == {
        "empty.png",
        "text.png",
        "short.png",
        "notes.txt",
        "bomb.ppm",
    }
    assert done.stdout.splitlines()[-2].startswith("eval_metric ")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "argv", "text"),
    [
        ("valid", ["--ckpt", "gone.onnx"], "error: model file gone.onnx does not exist"),
        ("valid", ["--data_path", "gone"], "error: data path gone does not exist"),
        ("single_batch", ["--target", "sda"], "error: unknown target 'sda'; did you mean 'sdaa'?"),
        ("multi_batch", ["--input_size", "1", "2", "3"], "error: --input_size"),
    ],
)
def test_errors_of_a_script_are_one_line(
    name: str, argv: list[str], text: str, root: Path, tmp_path: Path, run_python: RunPython
) -> None:
    done = run_python(script(root, name), *argv, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(text)
    assert done.stderr.count("\n") == 1


def test_a_single_unreadable_image(root: Path, tmp_path: Path, run_python: RunPython) -> None:
    (tmp_path / "bad.png").write_bytes(b"")
    done = run_python(script(root, "single_batch"), "--data_path", tmp_path / "bad.png", "--target", "null")
    assert done.returncode == 2
    assert "bad.png: is empty (0 bytes)" in done.stderr


def test_answers_before_an_engine_failure_are_written(tmp_path: Path) -> None:
    def failing() -> Any:
        yield Answer("a.png", [{"label": "7", "score": 1.0}])
        raise EngineError("the card is gone")

    with pytest.raises(EngineError, match="the card is gone"):
        shown(failing(), options("--json", tmp_path / "answers.json", script="multi"), [])
    kept = json.loads((tmp_path / "answers.json").read_text(encoding="utf-8"))["answers"]
    assert [answer["name"] for answer in kept] == ["a.png"]


@pytest.mark.parametrize(
    ("call", "ckpt"),
    [
        ("Classification, ckpt='a.onnx'", "beside"),
        ("task=Classification, ckpt='a.onnx'", "beside"),
        ("__doc__, Classification, ckpt='a.onnx'", "as given"),
        ("__doc__, task=Classification, ckpt='a.onnx'", "as given"),
        ("description=__doc__, task=Classification, ckpt='a.onnx'", "as given"),
    ],
)
def test_a_script_calls_with_or_without_its_docstring(tmp_path: Path, call: str, ckpt: str) -> None:
    script = tmp_path / "example_valid.py"
    imports = "from utils.pipeline import cli\nfrom utils.tasks.classification.task import Classification\n"
    script.write_text(f"{imports}cli.valid({call})\n", encoding="utf-8")
    task, defaults = cli.call_of(script)
    assert task is Classification
    assert defaults == {"ckpt": tmp_path / "a.onnx" if ckpt == "beside" else "a.onnx"}


def test_a_script_without_a_call_is_not_run(tmp_path: Path) -> None:
    script = tmp_path / "own.py"
    script.write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n")
    with pytest.raises(ConfigError, match=r"own\.py"):
        cli.call_of(script)
    assert not (tmp_path / "ran").exists()
