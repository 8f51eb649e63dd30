"""A case of the zoo, judged as ``teco check`` does, with its valid steps in this process: no process is started."""

from __future__ import annotations

import json
import os
import shutil
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack, chdir, redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from support import ROOT

from engine import Array
from model_config.cases.case import Case, Command
from model_config.cases.config import load_cases
from model_config.judge import scorecard
from model_config.judge.accuracy import direction, judge_case, read_result
from model_config.judge.stored_outputs import of_baseline, of_target
from model_config.results import Accuracy, CaseResult, StepResult
from model_config.run.closing import closing
from utils.pipeline import answers, valid
from utils.pipeline.cli import call_of

PLANTED = "planted.onnx"


def case_of(name: str, file: str = "model.yaml") -> Case:
    """Return a case of ``model_config/model.yaml`` or ``full.yaml``."""
    return next(case for case in load_cases([ROOT / "model_config" / file]) if case.name == name)


class JudgedCase:
    """A case on a copy of its model's folder.

    Args:
        case: the case. root: a new folder, which gets the layout of the repository.
        home: the model's folder; default: that of the zoo.

    Attributes:
        folder: the copy of the model's folder; its ``data`` is a link.
        task: changes the task of the script before a run, as a contributor's script may.
    """

    def __init__(self, case: Case, root: Path, home: Path | None = None) -> None:
        self.case, self.root, self.home = case, root, home or ROOT / case.run_dir
        self.folder = root / case.run_dir
        self.task: Callable[[type], type] = lambda task: task
        self.folder.mkdir(parents=True)
        for one in self.home.iterdir():
            if one.is_file():
                shutil.copy(one, self.folder)
            elif one.name == "data":
                (self.folder / one.name).symlink_to(one)

    @property
    def step(self) -> Command:
        """The valid step."""
        return next(step for step in self.case.steps if step.name == "valid")

    def run(self, step: Command, name: str, extra: Sequence[str] = ()) -> StepResult:
        """Run a step as :func:`model_config.run.runner.run_step` does, but in this process."""
        call = call_of(self.folder / step.run_file)
        result, stdout, stderr = (self.root / f"{name}.{ending}" for ending in ("json", "stdout", "stderr"))
        words = [*step.arguments, *extra, "--json", str(result)]
        with ExitStack() as stack, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a script prints them and goes on
            stack.enter_context(chdir(self.folder))
            stack.enter_context(redirect_stdout(stack.enter_context(stdout.open("w"))))
            stack.enter_context(redirect_stderr(stack.enter_context(stderr.open("w"))))
            task = self.task(call.task)
            if step.name == "valid":
                code = valid.main(None, task, argv=words, **call.defaults)
            else:
                code = answers.main(None, task, step.name, argv=words, **call.defaults)
        metric, reason = closing(stdout) if step.name == "valid" else (None, "")
        passed = code == 0 and not reason
        return StepResult(
            self.case.name, name, tuple(words), passed, 1.0, code, reason, stdout, stderr, metric, result=result
        )

    def judge(self, *, strict: bool = False) -> CaseResult:
        """Run the valid step and the baseline, and return the result with all comparisons, the scorecard's too."""
        ran = self.run(self.step, "valid")
        assert ran.passed, (ran.reason, ran.stderr.read_text())
        accuracy, others, _ = judge_case(self.case, self.step, ran, self.folder, self.run, strict=strict)
        assert all(one.passed for one in others), [(one.reason, one.stderr.read_text()) for one in others]
        found = self._measured(ran, accuracy)
        if scorecard.stored_outputs(self.home, self.key):
            computed, precision = of_target(self.case, self.run)
            found = replace(found, outputs=computed, precision=precision)
        findings = tuple(scorecard.compare(self.home, found, self.home))
        return CaseResult(
            self.case.name, self.case.run_dir, findings=findings, steps=(ran, *others), accuracy=tuple(accuracy)
        )

    @property
    def key(self) -> dict[str, Any]:
        """Identification of the case in the scorecard."""
        return scorecard.Measured(self.case, self.step, "", 0.0, 0, (), {}, "", None).key

    def store(self) -> None:
        """Write the scorecard of the case into its home, as ``teco check --update`` does."""
        ran = self.run(self.step, "valid")
        stored, note = of_baseline(self.case, self.folder, self.run)
        assert stored, note
        scorecard.write(self.home, replace(self._measured(ran, ()), outputs=stored), "abc1234", "2026-11-29")

    def _measured(self, ran: StepResult, accuracy: Sequence[Accuracy]) -> scorecard.Measured:
        said = read_result(ran.result)
        return scorecard.Measured(
            self.case, self.step, said["metric_name"], said["metric"], said["samples"], accuracy, {}, "", None,
            direction(ran.result),
        )  # fmt: skip

    @property
    def models(self) -> tuple[Path, Path]:
        """The model file of the target, and that of the baseline."""
        (file,) = self.step.ckpts.values()
        other = self.case.accuracy.baseline_ckpt
        return self.folder / file, self.folder / (str(other) or file.replace("_float16", ""))

    def plant(self, change: Callable[[onnx.ModelProto], None]) -> None:
        """Change the target's model alone."""
        ours, theirs = self.models
        model = onnx.load(ours)
        change(model)
        onnx.save(model, self.folder / PLANTED)
        steps = tuple(replace(one, params={**one.params, "ckpt": PLANTED}) for one in self.case.steps)
        self.case = replace(self.case, steps=steps, accuracy=replace(self.case.accuracy, baseline_ckpt=theirs.name))

    def change_both(self, change: Callable[[onnx.ModelProto], None]) -> None:
        """Change the target's and the baseline's model, as an export that is wrong does."""
        for file in set(self.models):
            model = onnx.load(file)
            change(model)
            onnx.save(model, file)

    def own_data(self) -> Path:
        """Replace the link to the data by a folder of links to its files, and return it."""
        data = self.folder / "data"
        source = data.resolve()
        data.unlink()
        shutil.copytree(source, data, copy_function=os.symlink)
        return data


def rewrite(file: Path, change: Callable[[str], str]) -> None:
    """Change the text of a file; a link is replaced by a file."""
    text = change(file.read_text(encoding="utf-8"))
    file.unlink()
    file.write_text(text, encoding="utf-8")


def noted(key: str, change: Callable[[Any], Any]) -> Callable[[onnx.ModelProto], None]:
    """Return a change of a model's metadata: of the JSON value of a key."""

    def apply(model: onnx.ModelProto) -> None:
        (entry,) = (one for one in model.metadata_props if one.key == key)
        entry.value = json.dumps(change(json.loads(entry.value)))

    return apply


def weighted(weights: str, change: Callable[[Array], Array]) -> Callable[[onnx.ModelProto], None]:
    """Return a change of one weight of a model; the weight keeps its dtype."""

    def apply(model: onnx.ModelProto) -> None:
        (found,) = (one for one in model.graph.initializer if one.name == weights)
        values = numpy_helper.to_array(found)
        changed = np.ascontiguousarray(change(values.astype(np.float64))).astype(values.dtype)
        found.CopyFrom(numpy_helper.from_array(changed, weights))

    return apply


def inputs_changed(change: Callable[[Array], Array], place: int = 0) -> Callable[[type], type]:
    """Return a change of a task: its ``prepare`` gives other values of one input."""

    def derive(task: type) -> type:
        class Wrong(task):  # type: ignore[misc, valid-type]
            def prepare(self, samples: Sequence[Any]) -> Any:
                found = super().prepare(samples)
                arrays = list(found.arrays)
                given = arrays[place]
                arrays[place] = [change(one) for one in given] if isinstance(given, list) else change(given)
                return found._replace(arrays=arrays)

        return Wrong

    return derive


def outputs_changed(change: Callable[[Any], Any]) -> Callable[[type], type]:
    """Return a change of a task: its ``decode`` reads other values."""

    def derive(task: type) -> type:
        class Wrong(task):  # type: ignore[misc, valid-type]
            def decode(self, outputs: Any, contexts: Any) -> Any:
                return super().decode(change(outputs), contexts)

        return Wrong

    return derive
