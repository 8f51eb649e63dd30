"""The answers of both runs to the samples whose predictions differ, drawn by the case's own task.

The valid script is run again on the target and on the baseline with ``--show`` and ``--save``, as limited processes
like every step. Nothing here affects a verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from engine import DataError
from model_config.cases.case import Command
from model_config.results import Drawn, StepResult
from model_config.run.foreign import Foreign
from model_config.written import STRANGE, read_json
from tecoinfer_modelzoo.text import one_line, shortened
from utils.pipeline.resume.records import find_records

MOST = 8
"""Largest number of samples that are drawn."""

TARGET, BASELINE = "differing", "differing-baseline"
"""Names of the two runs."""

_TEXT = 2000
"""Maximum characters of a name or a text."""

Run = Callable[[Command, str, Sequence[str]], StepResult]


def draw(
    step: Command, valid: StepResult, baseline: StepResult, run: Run, foreign: Foreign
) -> tuple[tuple[Drawn, ...], str]:
    """Draw the samples with the largest effect on the metric.

    Args:
        step: the valid step. valid, baseline: its result, and that of the baseline.
        run: runs a command under a name, with additional arguments that override its own.
        foreign: client for the metric, which may be contributed.

    Returns:
        The samples, and one line if they could not be drawn.
    """
    try:
        samples = _samples(valid, baseline, foreign)
        if not samples:
            return (), ""
        numbers = [str(index) for index, _ in samples]
        ours = _answers(run(_command(step), TARGET, _words(numbers, valid, TARGET, step)))
        theirs = _answers(run(_command(step), BASELINE, _words(numbers, baseline, BASELINE, step)))
    except DataError as error:
        return (), f"the predictions that differ are not drawn: {shortened(one_line(error), _TEXT)}"
    both = [(name, ours[name], theirs[name]) for _, name in samples if name in ours and name in theirs]
    found = (Drawn(name, one.sample, one.text, other.text, one.image, other.image) for name, one, other in both)
    return tuple(found), ""


class _Answer(NamedTuple):
    sample: str
    text: str
    image: Path | None


def _samples(valid: StepResult, baseline: StepResult, foreign: Foreign) -> list[tuple[int, str]]:
    """Return index and name of the samples to draw."""
    results = [step.result for step in (valid, baseline) if step.result is not None]
    records = [found for result in results if (found := find_records(result)) is not None]
    if len(records) < 2:
        return []
    definition = _content(results[0]).get("metric_definition")
    said = foreign.ask("differing", definition=definition, records=list(map(str, records)), most=MOST)
    try:
        return [(int(index), str(name)) for index, name in said["samples"]][:MOST]
    except STRANGE as error:
        raise DataError("the metric's process gave an invalid answer; do not write to its files") from error


def _command(step: Command) -> Command:
    """Return a command with the same arguments that needs no metric."""
    return Command("multi", step.run_file, step.params)


def _words(numbers: Sequence[str], ran: StepResult, name: str, step: Command) -> list[str]:
    """Return the arguments of a run in addition to those of the step: its own, and those for the answers."""
    own = ran.command[2 + len(step.arguments) :]
    stem = ran.stdout.parent / name
    return [*own, "--show", *numbers, "--save", f"{stem}.images", "--json", f"{stem}.json"]


def _answers(step: StepResult) -> dict[str, _Answer]:
    """Return the answers of a run by the sample's name.

    Raises:
        DataError: there are none.
    """
    found = _content(step.result).get("answers")
    if not isinstance(found, list) or not found:
        raise DataError(f"{step.step}: {step.reason or 'the script wrote no answers for --show'}")
    images = {path.name: path for path in step.images}
    answers = {}
    for one in found:
        try:
            texts = [one[key] if isinstance(one[key], str) else "" for key in ("name", "sample", "text")]
            _, sample, text = (shortened(each, _TEXT) for each in texts)
            answers[texts[0]] = _Answer(sample, text, images.get(one["file"]))
        except STRANGE as error:
            raise DataError(f"{step.step}: an answer has no name, sample, text or file") from error
    return answers


def _content(result: Path | None) -> Mapping[str, Any]:
    try:
        found = read_json(result) if result is not None else {}
    except STRANGE:
        return {}
    return found if isinstance(found, dict) else {}
