"""Every domain through everything that the zoo offers: scripts, targets, several processes, runs that were killed.

A domain is a row of ``DOMAINS``: its task, whose template makes the model, and what its scripts need besides.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from constructed_models import NAME, written
from marked_faces import SIDE, with_detector
from ray_cluster import ray_cluster, ray_settings
from support import DIGITS, ROOT

from utils.tasks.base import Task
from utils.tasks.find import tasks

ROOT_MAY = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}  # as in a container


@dataclass(frozen=True)
class Domain:
    """A row of the matrix.

    Attributes:
        task: the domain's.
        data: the labelled data in the model's folder.
        words: flags that each script needs.
        drawn: whether an answer can be saved for a look. suffix: of the file that it is.
        eight_bits: whether the template's network has layers that int8 is for.
        folder: a folder with scripts and model; ``None``: the task's template makes one.
        file: the float32 model in it.
        detector: the model is the second of two, behind a face detector, and its data are photographs.
        models: names of several that are all needed; each has a file of its own.
        slow: all of it is for the slow suite.
    """

    task: type[Task]
    data: str
    words: tuple[str, ...] = ()
    drawn: bool = True
    suffix: str = ".png"
    eight_bits: bool = True
    folder: Path | None = None
    file: str = f"{NAME}_dyn.onnx"
    detector: bool = False
    models: tuple[str, ...] = ()
    slow: bool = False


TASKS = tasks()

DOMAINS = {
    "arrays": Domain(TASKS["arrays"], "data/val.npz", slow=True),
    "classification": Domain(TASKS["classification"], "data/val", folder=DIGITS, file="digits_dyn.onnx"),
    "ctr_prediction": Domain(TASKS["ctr_prediction"], "data/val.csv", eight_bits=False, slow=True),
    "dense_regression": Domain(TASKS["dense_regression"], "data", slow=True),
    "detection": Domain(TASKS["detection"], "data/val.json"),
    "graph_prediction": Domain(TASKS["graph_prediction"], "data/val.npz", slow=True),
    "face_detection": Domain(TASKS["face_detection"], "data"),
    "face_verification": Domain(TASKS["face_verification"], "data"),
    "two_models": Domain(TASKS["face_verification"], "photographs", ("--input_size", str(SIDE)), detector=True),
    "image_restoration": Domain(TASKS["image_restoration"], "data", slow=True),
    "instance_segmentation": Domain(TASKS["instance_segmentation"], "data/val.json", slow=True),
    "image_text": Domain(TASKS["image_text"], "data", models=TASKS["image_text"].models, slow=True),
    "item_recommendation": Domain(TASKS["item_recommendation"], "data", eight_bits=False, slow=True),
    "keypoints": Domain(TASKS["keypoints"], "data/val.json", slow=True),
    "segmentation": Domain(TASKS["segmentation"], "data"),
    "sound_classification": Domain(TASKS["sound_classification"], "data/val", slow=True),
    "speech_recognition": Domain(TASKS["speech_recognition"], "data/recordings.jsonl"),
    "speaker_verification": Domain(TASKS["speaker_verification"], "data", ("--pairs", "balanced"), slow=True),
    "text_classification": Domain(
        TASKS["text_classification"], "data/val.tsv", ("--dim", "seq=64"), drawn=False, eight_bits=False
    ),
    "text_generation": Domain(TASKS["text_generation"], "data/val.txt", suffix=".txt"),
    "text_recognition": Domain(TASKS["text_recognition"], "data/rec_gt.txt"),
    "token_classification": Domain(
        TASKS["token_classification"], "data/val.conll", ("--dim", "seq=64"), suffix=".txt", eight_bits=False, slow=True
    ),
    "translation": Domain(
        TASKS["translation"], "data/val.tsv", suffix=".txt", models=TASKS["translation"].models, slow=True
    ),
    "node_classification": Domain(
        TASKS["node_classification"],
        "data/digits_graph.npz",
        folder=ROOT / "example/gnn/digits_gcn",
        file="digits_gcn_dyn.onnx",
        slow=True,
    ),
    "page_reading": Domain(TASKS["page_reading"], "data", models=TASKS["page_reading"].models),
    "policy_rollout": Domain(TASKS["policy_rollout"], "data/recorded.npz", slow=True),
    "voice_activity": Domain(
        TASKS["voice_activity"], "data/val.jsonl", folder=ROOT / "example/speech/silero_vad", file="silero_vad_dyn.onnx"
    ),
}


@dataclass(frozen=True)
class Model:
    """A domain's model as a user has it: scripts beside ONNX files and data."""

    row: Domain
    folder: Path

    def command(self, script: str, *words: object) -> list[str]:
        several = [f"{name}={self.folder / f'{NAME}_{name}_dyn.onnx'}" for name in self.row.models]
        ckpt: list[object] = [*several] or [self.folder / self.row.file]
        if self.row.detector:
            data = self.folder / self.row.data / ("" if script == "valid" else "ada")
            ckpt = [f"detector={self.folder / 'detector.onnx'}", f"descriptor={ckpt[0]}", "--data_path", data]
        line = [sys.executable, self.folder / f"example_{script}.py", "--ckpt", *ckpt, *self.row.words, *words]
        return [str(word) for word in line]

    def run(self, script: str, *words: object, front: tuple[str, ...] = (), **env: str) -> Any:
        done = subprocess.run(
            [*front, *self.command(script, *words)],
            env=environment(**env),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def valid(self, result: Path, *words: object, **options: Any) -> dict[str, Any]:
        """Evaluate, check how the output ends, and return the JSON."""
        done = self.run("valid", "--json", result, *words, **options)
        assert done.returncode == 0, done.stderr
        metric, summary = done.stdout.splitlines()[-2:]
        found: dict[str, Any] = json.loads(result.read_text())
        assert float(metric.removeprefix("eval_metric ")) == pytest.approx(found["metric"], abs=1e-6)
        assert summary.startswith("summary: avg_sps: ")
        return found


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    return {**kept, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", **more}


ROWS = [pytest.param(name, marks=pytest.mark.slow if row.detector or row.slow else ()) for name, row in DOMAINS.items()]


@pytest.fixture(scope="module", params=ROWS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    row = DOMAINS[request.param]
    folder = row.folder or written(row.task, tmp_path_factory.mktemp(request.param))
    return Model(row, with_detector(folder) if row.detector else folder)


@pytest.fixture(scope="module")
def alone(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The result of a run that nothing disturbed, in one process."""
    result = tmp_path_factory.mktemp("alone") / "result.json"
    found = model.valid(result, "--target", "onnx", "--batch_size", 4)
    assert found["samples"] > 0
    assert found["finished"]
    assert found["task"] == model.row.task.name
    return result


def facts(result: Path) -> dict[str, Any]:
    """Return what must not depend on how a run was shared out or interrupted."""
    data = json.loads(result.read_text())
    return {key: data[key] for key in ("metric_name", "metric", "secondary", "per_class", "samples", "failures")}


def records(result: Path) -> bytes:
    (file,) = result.parent.glob(f"{result.stem}.samples.*")
    return file.read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("script", ["single_batch", "multi_batch"])
def test_answers(script: str, model: Model, tmp_path: Path) -> None:
    save = ("--save", tmp_path / "out") if model.row.drawn else ()
    done = model.run(script, "--target", "onnx", "--json", tmp_path / "r.json", *save)
    assert (done.returncode, done.stderr) == (0, "")
    answers = json.loads((tmp_path / "r.json").read_text())["answers"]
    assert len(answers) == 1 if script == "single_batch" else len(answers) > 1
    assert len(done.stdout.splitlines()) > len(answers)
    if model.row.drawn:
        assert len(list((tmp_path / "out").glob(f"*{model.row.suffix}"))) == len(answers)


@pytest.mark.slow
def test_answers_to_samples_of_the_evaluation(model: Model, tmp_path: Path) -> None:
    words = ("--show", 0, 1, "--save", tmp_path / "out", "--json", tmp_path / "r.json")
    done = model.run("valid", "--target", "onnx", *words)
    assert (done.returncode, done.stderr) == (0, "")
    answers = json.loads((tmp_path / "r.json").read_text())["answers"]
    assert len({one["name"] for one in answers}) == 2
    assert all(one["text"] for one in answers)
    files = [one["file"] for one in answers if one["file"] is not None]
    assert all((tmp_path / "out" / file).is_file() for file in files)


@pytest.mark.slow
@pytest.mark.long
def test_the_card_in_float16(model: Model, alone: Path, tmp_path: Path) -> None:
    found = model.valid(tmp_path / "r.json", "--target", "sdaa", "--dtype", "float16", "--batch_size", 16)
    assert found["simulated"]
    assert found["metric"] == pytest.approx(json.loads(alone.read_text())["metric"], rel=0.02)


@pytest.mark.slow
@pytest.mark.long
def test_eight_bits_on_the_cpu(model: Model, tmp_path: Path) -> None:
    """A constructed network may lose more by 8 bits than is allowed, which has an exit code of its own."""
    words = ("--target", "cpu", "--dtype", "int8", "--calib", 16, "--json", tmp_path / "r.json")
    done = model.run("valid", *words)
    if not model.row.eight_bits:
        assert done.returncode == 2
        assert "cannot be quantised to int8" in done.stderr
        return
    assert done.returncode in (0, 3), done.stderr
    found = json.loads((tmp_path / "r.json").read_text())
    assert found["comparison"]["mode"] == "--dtype int8"
    assert found["comparison"]["accepted"] == (done.returncode == 0)
    assert found["int8"]


@pytest.mark.long
@pytest.mark.slow
def test_killed_run_resumes(model: Model, alone: Path, tmp_path: Path) -> None:
    """Killed at any moment, before its end or even after it: the same command ends with the same result."""
    result, journals = tmp_path / "r.json", tmp_path / "journals"
    words = ("--target", "onnx", "--batch_size", 4, "--resume", journals)
    command = model.command("valid", *words, "--json", result)
    with subprocess.Popen(command, env=environment(), stdout=-1, stderr=-1) as process:
        file = journals / "journal.jsonl"
        while process.poll() is None and not (file.exists() and file.read_bytes().count(b"\n") > 2):
            time.sleep(0.001)
        process.kill()
        process.communicate()
    model.valid(result, *words)
    assert facts(result) == facts(alone)
    assert records(result) == records(alone)


@pytest.mark.long
@pytest.mark.slow
def test_steps_of_a_stopped_run_are_taken_from_the_journal(model: Model, alone: Path, tmp_path: Path) -> None:
    result = tmp_path / "r.json"
    words = ("--target", "onnx", "--batch_size", 4, "--resume", tmp_path / "journals")
    model.valid(result, *words, TECO_INFER_PIPELINES_MAX_STEPS="2")
    assert model.valid(result, *words)["resumed_steps"] == 2
    assert facts(result) == facts(alone)
    assert records(result) == records(alone)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("mpirun") is None, reason="mpirun is not installed (Debian: openmpi-bin)")
@pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason='mpi4py is not installed (".[mpi]")')
def test_two_ranks(model: Model, alone: Path, tmp_path: Path) -> None:
    result = tmp_path / "r.json"
    ranks = ("mpirun", "--oversubscribe", "-n", "2")
    found = model.valid(result, "--target", "onnx", "--batch_size", 4, front=ranks, **ROOT_MAY)
    assert found["processes"] == 2
    assert facts(result) == facts(alone)
    assert records(result) == records(alone)


@pytest.fixture(scope="module")
def cluster() -> Iterator[dict[str, str]]:
    with ray_settings() as settings, ray_cluster(settings) as joined:
        yield joined


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason='Ray is not installed (".[ray]")')
def test_two_workers(model: Model, alone: Path, cluster: dict[str, str], tmp_path: Path) -> None:
    result = tmp_path / "r.json"
    words = ("--target", "onnx", "--batch_size", 4, "--launcher", "ray", "--num_workers", 2)
    found = model.valid(result, *words, **cluster)
    assert found["processes"] == 2
    assert facts(result) == facts(alone)
    assert records(result) == records(alone)
