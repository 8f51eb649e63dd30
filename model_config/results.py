"""What a check finds out, as plain data: every report is drawn from these and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

SCHEMA_VERSION = 3
"""Version of the JSON layout; it rises when a field changes its meaning or goes."""


class Verdict(str, Enum):
    """What is said of a case or of one of its parts, from best to worst in the order of :data:`SEVERITY`."""

    NONE = "not judged"
    PASS = "PASS"  # noqa: S105
    INCONCLUSIVE = "INCONCLUSIVE"
    FAIL = "FAIL"


SEVERITY = tuple(Verdict)
"""The verdicts from the one that matters least to the one that decides."""

EXIT_CODES = {Verdict.NONE: 0, Verdict.PASS: 0, Verdict.FAIL: 1, Verdict.INCONCLUSIVE: 4}
"""Exit code of a check by its verdict; 2 is an unusable configuration, 130 an interrupted run."""


def worst(verdicts: Sequence[Verdict]) -> Verdict:
    """Return the verdict that decides; :attr:`Verdict.NONE` where there is none."""
    return max(verdicts, key=SEVERITY.index, default=Verdict.NONE)


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule that a case breaks.

    Attributes:
        file: path relative to the repository's root, with forward slashes.
        line: counted from 1; 0 where the whole file or folder is meant.
        rule: short name of the rule, such as ``readme-headings``.
        message: what is wrong, with the value.
        fix: what to do about it.
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
    """What one step did.

    Attributes:
        case, step: names of the case and of the step (a key of :data:`model_config.cases.config.STEPS`).
        command: the argument list that was run.
        passed: the step did all that is asked of it.
        seconds: wall time.
        exit_code: the process's; negative for a signal, ``None`` where it did not end by itself or never started.
        reason: one line that says why it failed; empty where it passed.
        stdout, stderr: its log files.
        eval_metric: the metric a valid step printed, where it printed one.
        peak_memory: largest resident memory in bytes of the step and its children; ``None`` where unknown.
        result: the JSON file the step wrote, where it can write one.
        images: images with the answers drawn on them, where the step can draw.
        cpu_seconds: computing time of the step and its children; ``None`` where unknown.
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
    """A metric beside the one it must equal.

    Attributes:
        verdict: the gate's. reason: one line that says why, and what would decide it.
        against: what the reference is: ``onnx float32``, or where a source framework's figure comes from.
        metric_name, metric, reference: what was measured, and both values.
        relative_difference: (metric - reference) / \\|reference\\|; NaN where the reference is 0 and the metric is not.
        tolerance: largest relative difference that passes, such as 0.001.
        samples: pairs that were compared; 0 where there are no per-sample records.
        units: independent units among them: as many as samples where each is independent; 0 without records.
        differing: units whose records differ. changed: names of the first of them.
        better, worse: records that got better and worse, by the metric's direction; 0 where it is not their mean.
        method: how ``bound`` was computed (:mod:`model_config.judge.bound`); empty without an estimate.
        interval: 95 % interval of the relative difference on other data; ``None`` without an estimate.
        bound: largest absolute relative difference in the interval; ``None`` without an estimate.
        needed: samples with which the bound would be within the tolerance; ``None`` where it is, or none would do.
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
class Speed:
    """A time beside the stored one of the same case.

    Attributes:
        verdict: ``FAIL`` only for what cannot be noise. reason: one line.
        what: such as ``simulated latency`` or ``host, relative to the calibration kernel``.
        value, baseline: in ``unit``; the baseline is ``None`` where none is stored.
        ratio: how many times slower than the baseline; below 1 is faster.
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
    """All that is known of one case.

    Attributes:
        case, run_dir: the case's name, and its folder relative to the repository's root.
        target: engine of its valid step; empty where it has none.
        findings: broken rules: of the configuration, of the structure, of the scorecard.
        steps, accuracy, speed: what ran and what was compared.
        seconds: wall time of the whole case.
        cached: everything was taken from an earlier check of the same contents.
        partial: which part of its data the valid step evaluated; empty for all of it.
        notes: lines that explain without judging, such as ``random weights: accuracy is not judged``.
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
        """The worst of the parts."""
        return worst(list(self.parts.values()))

    @property
    def reasons(self) -> list[str]:
        """Return one line for everything that did not pass, the structure first."""
        lines = [str(finding) for finding in self.findings]
        lines += [f"{step.step}: {step.reason}" for step in self.steps if not step.passed]
        judged: list[Accuracy | Speed] = [*self.accuracy, *self.speed]
        return lines + [one.reason for one in judged if one.verdict in (Verdict.FAIL, Verdict.INCONCLUSIVE)]


@dataclass(frozen=True, slots=True)
class CheckResult:
    """A whole check.

    Attributes:
        cases: in the order of the files.
        problems: what is wrong with the configuration outside any case.
        interrupted: Ctrl-C ended it; ``cases`` has what was done until then.
        seconds: wall time.
        commit: the checkout's commit, with ``-dirty`` where files differ; empty outside a git repository.
        date: when it began, ISO 8601 in UTC.
        logs: folder of the steps' logs.
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
        """The worst of the cases."""
        return Verdict.FAIL if self.problems else worst([case.verdict for case in self.cases])

    @property
    def exit_code(self) -> int:
        """0 passed, 1 failed, 4 inconclusive, 130 interrupted."""
        return 130 if self.interrupted else EXIT_CODES[self.verdict]

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain data with ``schema_version``; paths are texts."""
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
