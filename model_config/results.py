"""Results of a check as plain data; every report is generated from these classes alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

SCHEMA_VERSION = 3
"""Version of the JSON layout; it increases when a field changes its meaning or is removed."""


class Verdict(str, Enum):
    """Verdict on a case or on one of its parts; :data:`SEVERITY` gives the order."""

    NONE = "not judged"
    PASS = "PASS"  # noqa: S105
    INCONCLUSIVE = "INCONCLUSIVE"
    FAIL = "FAIL"


SEVERITY = tuple(Verdict)
"""The verdicts in order of increasing severity."""

EXIT_CODES = {Verdict.NONE: 0, Verdict.PASS: 0, Verdict.FAIL: 1, Verdict.INCONCLUSIVE: 4}
"""Exit code of a check by its verdict; 2 is an unusable configuration, 130 an interrupted run."""


def worst(verdicts: Sequence[Verdict]) -> Verdict:
    """Return the most severe verdict; :attr:`Verdict.NONE` for an empty sequence."""
    return max(verdicts, key=SEVERITY.index, default=Verdict.NONE)


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule violation of a case.

    Attributes:
        file: path relative to the repository's root, with forward slashes.
        line: line number from 1; 0 for the whole file or folder.
        rule: short name of the rule, such as ``readme-headings``.
        message: what is wrong, with the value.
        fix: how to fix it.
    """

    file: str
    line: int
    rule: str
    message: str
    fix: str

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else self.file
        return f"{where}: {self.rule}: {self.message}; {self.fix}"


@dataclass(frozen=True, slots=True)
class StepResult:
    """Result of one step.

    Attributes:
        case, step: names of the case and of the step (a key of :data:`model_config.cases.config.STEPS`).
        command: the argument list that was run.
        passed: whether the step met all requirements.
        seconds: wall time.
        exit_code: exit code of the process; negative for a signal, ``None`` if it was killed or never started.
        reason: one line with the reason of the failure; empty if the step passed.
        stdout, stderr: its log files.
        eval_metric: the metric that a valid step printed, if any.
        peak_memory: peak resident memory in bytes of the step and its children; ``None`` if unknown.
        result: the JSON file that the step wrote, if supported.
        images: images with the predictions drawn on them, if supported.
        cpu_seconds: CPU time of the step and its children; ``None`` if unknown.
    """

    case: str
    step: str
    command: tuple[str, ...]
    passed: bool
    seconds: float
    exit_code: int | None
    reason: str
    stdout: Path
    stderr: Path
    eval_metric: float | None = None
    peak_memory: int | None = None
    result: Path | None = None
    images: tuple[Path, ...] = ()
    cpu_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Comparison of a metric with its reference.

    Attributes:
        verdict: verdict of the gate. reason: one line with the reason, and what is needed for a decision.
        against: the reference: ``onnx float32``, or the source of a source framework's value.
        metric_name, metric, reference: name of the metric, measured value and reference value.
        relative_difference: (metric - reference) / \\|reference\\|; NaN if only the reference is 0.
        tolerance: maximum relative difference, such as 0.001.
        samples: number of compared pairs; 0 without per-sample records.
        units: number of independent units; equals ``samples`` if each is independent; 0 without records.
        differing: number of units whose records differ. changed: names of the first of them.
        better, worse: records that improved and degraded, by the metric's direction; 0 if it is not their mean.
        method: how ``bound`` was computed (:mod:`model_config.judge.bound`); empty without an estimate.
        interval: 95 % interval of the relative difference on other data; ``None`` without an estimate.
        bound: largest absolute relative difference in the interval; ``None`` without an estimate.
        needed: samples needed for a bound within the tolerance; ``None`` if already reached or unreachable.
        tail: pairs (deviation / margin, share of samples with at least this ratio) of method ``margins``.
        higher_is_better: the metric's direction.
    """

    verdict: Verdict
    reason: str
    against: str
    metric_name: str
    metric: float
    reference: float
    relative_difference: float
    tolerance: float
    samples: int = 0
    units: int = 0
    differing: int = 0
    changed: tuple[str, ...] = ()
    better: int = 0
    worse: int = 0
    method: str = ""
    interval: tuple[float, float] | None = None
    bound: float | None = None
    needed: int | None = None
    tail: tuple[tuple[float, float], ...] = ()
    higher_is_better: bool = True


@dataclass(frozen=True, slots=True)
class Drawn:
    """The answers of both runs to a sample whose prediction differs.

    Attributes:
        name: of the sample. sample: its text, if it is one.
        target, baseline: both answers as text.
        target_image, baseline_image: the sample with each answer drawn; ``None`` if the task draws none.
    """

    name: str
    sample: str
    target: str
    baseline: str
    target_image: Path | None = None
    baseline_image: Path | None = None


@dataclass(frozen=True, slots=True)
class Speed:
    """Comparison of a time with the stored time of the same case.

    Attributes:
        verdict: ``FAIL`` only if noise cannot explain the difference. reason: one line.
        what: the measured quantity, such as ``simulated latency`` or ``host, relative to the calibration kernel``.
        value, baseline: in ``unit``; ``baseline`` is ``None`` if none is stored.
        ratio: value / baseline; above 1 is slower, below 1 is faster.
        bucket: ``faster``, ``same``, ``1.05``, ``1.2``, ``1.5`` or ``2``: the largest bound that the ratio reaches.
    """

    verdict: Verdict
    reason: str
    what: str
    value: float
    unit: str
    baseline: float | None = None
    ratio: float | None = None
    bucket: str = ""


@dataclass(frozen=True, slots=True)
class CaseResult:
    """Complete result of one case.

    Attributes:
        case, run_dir: the case's name, and its folder relative to the repository's root.
        target: engine of its valid step; empty without one.
        findings: rule violations of the configuration, the structure and the scorecard.
        steps, accuracy, speed: results of the steps and the comparisons.
        seconds: wall time of the whole case.
        cached: whether the result was loaded from an earlier check of the same contents.
        partial: the part of the data that the valid step evaluated; empty for all of it.
        drawn: samples whose predictions differ, with the largest effect on the metric first, if the check drew them.
        notes: explanations that do not affect the verdict, such as ``random weights: accuracy is not judged``.
    """

    case: str
    run_dir: str
    target: str = ""
    findings: tuple[Finding, ...] = ()
    steps: tuple[StepResult, ...] = ()
    accuracy: tuple[Accuracy, ...] = ()
    speed: tuple[Speed, ...] = ()
    seconds: float = 0.0
    cached: bool = False
    partial: str = ""
    drawn: tuple[Drawn, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def parts(self) -> dict[str, Verdict]:
        """Verdicts of structure, function, accuracy and speed."""
        function = Verdict.NONE
        if self.steps:
            function = Verdict.PASS if all(step.passed for step in self.steps) else Verdict.FAIL
        return {
            "structure": Verdict.FAIL if self.findings else Verdict.PASS,
            "function": function,
            "accuracy": worst([one.verdict for one in self.accuracy]),
            "speed": worst([one.verdict for one in self.speed]),
        }

    @property
    def verdict(self) -> Verdict:
        """The most severe verdict of the parts."""
        return worst(list(self.parts.values()))

    @property
    def reasons(self) -> list[str]:
        """Return one line for each part that did not pass, the structure first."""
        lines = [str(finding) for finding in self.findings]
        lines += [f"{step.step}: {step.reason}" for step in self.steps if not step.passed]
        judged: list[Accuracy | Speed] = [*self.accuracy, *self.speed]
        return lines + [one.reason for one in judged if one.verdict in (Verdict.FAIL, Verdict.INCONCLUSIVE)]


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Result of a whole check.

    Attributes:
        cases: in the order of the files.
        problems: configuration problems that do not belong to a case.
        interrupted: whether Ctrl-C stopped the check; ``cases`` then holds the results so far.
        seconds: wall time.
        commit: commit of the checkout, with ``-dirty`` if files differ; empty outside a git repository.
        date: start time, ISO 8601 in UTC.
        logs: folder with the logs of the steps.
        environment: versions and machine (:func:`utils.pipeline.report.report.environment`).
    """

    cases: tuple[CaseResult, ...]
    problems: tuple[str, ...] = ()
    interrupted: bool = False
    seconds: float = 0.0
    commit: str = ""
    date: str = ""
    logs: Path = Path()
    environment: Mapping[str, Any] = field(default_factory=dict)

    @property
    def verdict(self) -> Verdict:
        """The most severe verdict of the cases."""
        return Verdict.FAIL if self.problems else worst([case.verdict for case in self.cases])

    @property
    def exit_code(self) -> int:
        """0 passed, 1 failed, 4 inconclusive, 130 interrupted."""
        return 130 if self.interrupted else EXIT_CODES[self.verdict]

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain data with ``schema_version``; paths become strings."""
        data = asdict(self)
        for plain, case in zip(data["cases"], self.cases, strict=True):
            plain["verdict"] = case.verdict.value
            plain["parts"] = {part: verdict.value for part, verdict in case.parts.items()}
            plain["reasons"] = case.reasons
        head = {"schema_version": SCHEMA_VERSION, "kind": "check", "verdict": self.verdict.value}
        texts: dict[str, Any] = _texts({**head, **data})
        return texts


def _texts(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _texts(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_texts(item) for item in value]
    if isinstance(value, Verdict):
        return value.value
    return str(value) if isinstance(value, Path) else value
