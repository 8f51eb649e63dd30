"""The check of one case, from structure to speed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from engine import ConfigError
from model_config.cases.config import ROOT, Case, Command
from model_config.judge import scorecard
from model_config.judge.accuracy import BASELINE_NAME, RANDOM, cut_short, direction, judge_case, read_result
from model_config.judge.speed import figures, judge_speed, kernel_seconds
from model_config.judge.stored_outputs import of_baseline, of_target
from model_config.judge.targets import on_other_targets
from model_config.results import Accuracy, CaseResult, Drawn, Finding, Speed, StepResult, Verdict
from model_config.run import cache
from model_config.run.drawn import draw
from model_config.run.foreign import Foreign
from model_config.run.key import Shared, case_key
from model_config.run.left_out import missing_from_git
from model_config.run.runner import Limits, OnOutput, Slot, run_step
from model_config.run.snapshot import Snapshot, Snapshots, names_of
from model_config.run.workplace import workplace
from model_config.structure import check_structure

AGAIN = "valid-again"
"""Name of the repeated run of a valid step that measures its time."""

OUTSIDE = "writes-outside"
"""Rule that steps only write in their model's folder; another case may have caused the finding, so it is not cached."""

INTERRUPTED = "interrupted: the results are incomplete"

STRUCTURE_ONLY = "structure only: no step was run"


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings that all cases of a check share.

    Attributes:
        work_dir: folder for logs and copies. root: the repository.
        limits: limits of each step.
        cached: use cached results; results are always stored.
        update: write the scorecards instead of comparing with them.
        commit, date: recorded in the scorecards.
        problems: problems of the entries in ``model.yaml``, by case.
        on_output: called with every line that a step prints. on_step: called with case and step after each step.
        shared: what the cache keys of all cases have in common.
        snapshots: snapshots of the repository, shared by all cases; default: one per case.
        host_speed: judge times that depend on this host.
        draws: draw the samples whose predictions differ, for a page.
        strict: every accuracy gate also requires a bound within the tolerance.
        only_structure: apply the rules of structure, and run no step.
        handed: additional environment variables for the steps (:mod:`.environment`); their values are part of the
            cache key.
    """

    work_dir: Path
    root: Path = ROOT
    limits: Limits = field(default_factory=Limits)
    cached: bool = True
    update: bool = False
    commit: str = ""
    date: str = ""
    problems: Mapping[str, Sequence[Finding]] = field(default_factory=dict)
    on_output: OnOutput | None = None
    on_step: Callable[[str, str], None] | None = None
    shared: Shared | None = None
    snapshots: Snapshots | None = None
    handed: Sequence[str] = ()
    host_speed: bool = True
    strict: bool = False
    only_structure: bool = False
    draws: bool = False


def check_case(case: Case, slot: Slot, settings: Settings) -> CaseResult:
    """Check one case.

    Args:
        slot: cores for its steps.
        slot: cores for its steps.

    Returns:
        The result; after Ctrl-C the incomplete result with a note.
    """
    if findings := settings.problems.get(case.name):
        return CaseResult(case.name, case.run_dir, findings=tuple(findings))
    if settings.only_structure:
        return _structure(case, slot, settings)
    key = ""
    if not settings.update:
        flags = asdict(settings.limits) | {"handed": {name: os.environ.get(name) for name in settings.handed}}
        flags |= {"host_speed": settings.host_speed, "strict": settings.strict}
        key = case_key(case, settings.root, flags=flags, shared=settings.shared)
        if settings.cached and (known := cache.load(key)) is not None:
            return known
    run = _CaseRun(case, slot, settings)
    result = run()
    if key and not run.interrupted and not any(finding.rule == OUTSIDE for finding in result.findings):
        cache.store(key, result)
    return result


def _structure(case: Case, slot: Slot, settings: Settings) -> CaseResult:
    """Apply the rules of structure only; the result is not a verdict on the case, and is not cached."""
    start = time.perf_counter()
    foreign = Foreign(settings.root, settings.limits, slot.stop, settings.handed, slot.cores)
    findings = check_structure(case, settings.root, foreign)
    seconds = time.perf_counter() - start
    return CaseResult(case.name, case.run_dir, findings=tuple(findings), seconds=seconds, notes=(STRUCTURE_ONLY,))


def _written_outside(case: Case, snapshot: Snapshot) -> list[Finding]:
    """Return the shared files that a case, or one that ran at the same time, has changed."""
    changed = snapshot.changed()
    if not changed:
        return []
    message = f"{', '.join(names_of(changed))} changed while it ran: by its steps, or by those of a parallel case"
    fix = "let a step write only in its model's folder; run with --jobs 1 to identify the case"
    return [Finding(case.run_dir, 0, OUTSIDE, message, fix)]


@dataclass(slots=True)
class _CaseRun:
    """State of the check of one case."""

    case: Case
    slot: Slot
    settings: Settings
    findings: list[Finding] = field(default_factory=list)
    steps: list[StepResult] = field(default_factory=list)
    accuracy: list[Accuracy] = field(default_factory=list)
    speed: list[Speed] = field(default_factory=list)
    drawn: tuple[Drawn, ...] = ()
    notes: list[str] = field(default_factory=list)
    tree: Path = Path()
    kernel: float = 0.0
    interrupted: bool = False

    def __call__(self) -> CaseResult:
        start = time.perf_counter()
        try:
            self.findings += check_structure(self.case, self.settings.root, self._foreign(self.settings.root))
            self._in_a_copy(self.settings.snapshots or Snapshots(self.settings.root, self.settings.work_dir))
        except KeyboardInterrupt:
            self.interrupted = True
            self.notes.append(INTERRUPTED)
        return self._result(time.perf_counter() - start)

    def _in_a_copy(self, snapshots: Snapshots) -> None:
        """Run the steps and judge them; report files changed outside their folder."""
        snapshot = snapshots.current()
        try:
            with workplace(self.case, self.settings.work_dir, self.settings.root, snapshot) as self.tree:
                for step in self.case.steps:
                    self.steps.append(self._run(step))
                    if not self.steps[-1].passed:
                        root = self.settings.root
                        self.findings += missing_from_git(self.case, self.steps[-1], root, self._folder)
                self._judge()
        finally:
            self.findings += _written_outside(self.case, snapshot)
            snapshots.done(snapshot)
            if self.settings.snapshots is None:
                snapshots.close()

    def _result(self, seconds: float) -> CaseResult:
        valid = self._step("valid")
        return CaseResult(
            self.case.name,
            self.case.run_dir,
            str(valid.params["target"]) if valid else "",
            tuple(self.findings),
            tuple(self.steps),
            tuple(self.accuracy),
            tuple(self.speed),
            seconds,
            drawn=self.drawn,
            partial=cut_short(next((result for result in self.steps if result.step == "valid"), None)),
            notes=tuple(self.notes),
        )

    def _foreign(self, root: Path) -> Foreign:
        """Return the client for contributed code below a root."""
        return Foreign(root, self.settings.limits, self.slot.stop, self.settings.handed, self.slot.cores)

    @property
    def _folder(self) -> Path:
        """Copy of the model's folder."""
        return self.tree / self.case.run_dir

    @property
    def _home(self) -> Path:
        """The model's original folder, with its scorecard."""
        return self.settings.root / self.case.run_dir

    def _step(self, name: str) -> Command | None:
        return next((step for step in self.case.steps if step.name == name), None)

    def _run(self, step: Command, name: str | None = None, extra: Sequence[str] = ()) -> StepResult:
        timed = step.name == "valid" and name in (None, AGAIN)
        before = kernel_seconds(self.slot.cores) if timed else 0.0
        settings = self.settings
        result = run_step(
            self.case,
            step,
            self.tree,
            settings.work_dir / "logs" / self.case.name,
            settings.limits,
            extra=extra,
            name=name,
            on_output=settings.on_output,
            slot=self.slot,
            handed=settings.handed,
        )
        if timed:
            self.kernel = (before + kernel_seconds(self.slot.cores)) / 2
        if settings.on_step is not None:
            settings.on_step(self.case.name, result.step)
        return result

    def _judge(self) -> None:
        """Judge accuracy and speed of a passed valid step, and compare with the scorecard."""
        step = self._step("valid")
        valid = next((result for result in self.steps if result.step == "valid"), None)
        if step is None or valid is None or not valid.passed:
            return
        measured = figures(valid, self.kernel)
        accuracy, ran, notes = judge_case(
            self.case,
            step,
            valid,
            self._folder,
            self._run,
            self._foreign(self.tree),
            strict=self.settings.strict,
        )
        self.accuracy, self.notes = accuracy, self.notes + notes
        self.steps += ran
        found = self._measured(step, valid, measured)
        if not self.settings.update:
            found = self._with_outputs(found)
            self.findings += scorecard.compare(self._home, found, self.settings.root)
        again = self._measure_again(step)
        self.speed = judge_speed(measured, self._stored(found), again, host=self.settings.host_speed)
        if self.settings.update:
            self._update(self._on_all_targets(step, self._with_baseline_outputs(found)))
        baseline = next((one for one in ran if one.step == BASELINE_NAME), None)
        if self.settings.draws and baseline is not None and accuracy[0].differing:
            self.drawn, trouble = draw(step, valid, baseline, self._run, self._foreign(self.tree))
            self.notes += [trouble] if trouble else []

    def _measure_again(self, step: Command) -> Callable[[], Mapping[str, float]]:
        def measure() -> Mapping[str, float]:
            result = self._run(step, AGAIN)
            return figures(result, self.kernel) if result.passed else {}

        return measure

    def _stored(self, found: scorecard.Measured) -> dict[str, Any]:
        if self.settings.update:
            return {}
        try:
            return scorecard.stored_speed(self._home, found.key)
        except ConfigError:  # reported as a finding
            return {}

    def _measured(self, step: Command, valid: StepResult, speed: Mapping[str, float]) -> scorecard.Measured:
        said = {} if RANDOM in self.notes else read_result(valid.result)
        return scorecard.Measured(
            self.case,
            step,
            said.get("metric_name", ""),
            said.get("metric", 0.0),
            said.get("samples", 0),
            self.accuracy,
            speed,
            scorecard.hash_models(self._folder, step.ckpts),
            scorecard.hash_data(self._folder, step.data_paths),
            direction(valid.result),
        )

    def _with_outputs(self, found: scorecard.Measured) -> scorecard.Measured:
        """Add the outputs of the target if the scorecard has some to compare them with."""
        if not found.metric_name or not scorecard.stored_outputs(self._home, found.key):
            return found
        outputs, precision = of_target(self.case, self._run)
        return replace(found, outputs=outputs, precision=precision)

    def _with_baseline_outputs(self, found: scorecard.Measured) -> scorecard.Measured:
        """Add the outputs to store, those of the baseline."""
        if not found.metric_name:
            return found
        outputs, note = of_baseline(self.case, self._folder, self._run)
        self.notes += [note] if note else []
        return replace(found, outputs=outputs)

    def _on_all_targets(self, step: Command, found: scorecard.Measured) -> scorecard.Measured:
        if not found.metric_name or not all(one.passed for one in self.steps):
            return found
        others, notes = on_other_targets(self.case, step, self._folder, self.steps, self._run)
        self.notes += notes
        return replace(found, others=others)

    def _update(self, found: scorecard.Measured) -> None:
        if not all(step.passed for step in self.steps) or any(one.verdict is Verdict.FAIL for one in self.accuracy):
            self.notes.append("the scorecard is not written: the case does not pass")
            return
        written = scorecard.write(self._home, found, self.settings.commit, self.settings.date)
        self.notes += [f"written: {path.relative_to(self.settings.root)}" for path in written]
