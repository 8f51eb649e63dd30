"""The result of a check as JUnit XML, which CI services display with a change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from model_config.reports.text import read_log
from model_config.results import Accuracy, CaseResult, CheckResult, Speed, StepResult, Verdict
from tecoinfer_modelzoo.formatting import clean, clean_line

_LINES, _CHARACTERS, _BYTES = 100, 20_000, 65_536
"""Maximum bytes and lines of a log's end in the XML."""


def junit_xml(check: CheckResult) -> str:
    """Return a check as JUnit XML: a suite per case, a test per finding, step and comparison.

    An inconclusive comparison of a strict gate is an error, as it also prevents a pass. Comparisons that are not judged
    are skipped. Characters that XML forbids become U+FFFD.
    """
    root = Element("testsuites", name="model_config.check")
    if check.problems or check.interrupted:
        _add_check(root, check)
    for case in check.cases:
        _add_case(root, case, check.date)
    for suite in root:
        _count(suite, suite.iter("testcase"))
    _count(root, root.iter("testcase"))
    root.set("time", f"{check.seconds:.3f}")
    indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + tostring(root, encoding="unicode") + "\n"


def _add_check(root: Element, check: CheckResult) -> None:
    suite = SubElement(root, "testsuite", name="check")
    for index, problem in enumerate(check.problems, 1):
        _outcome(_test(suite, "check", f"configuration {index}"), "error", "configuration", problem)
    if check.interrupted:
        _outcome(_test(suite, "check", "interrupted"), "error", "interrupted", "interrupted: not every case was run")


def _add_case(root: Element, case: CaseResult, date: str) -> None:
    name = clean_line(case.case)
    suite = SubElement(root, "testsuite", name=name, time=f"{case.seconds:.3f}")
    if date:
        suite.set("timestamp", clean_line(date))
    properties = SubElement(suite, "properties")
    values = {"run_dir": case.run_dir, "target": case.target, "cached": str(case.cached).lower()}
    values |= {"partial": case.partial, **{f"note {index}": note for index, note in enumerate(case.notes, 1)}}
    for key, value in values.items():
        if value:
            SubElement(properties, "property", name=key, value=clean_line(value))
    _add_findings(suite, case)
    for step in case.steps:
        _add_step(suite, name, step)
    every: list[Accuracy | Speed] = [*case.accuracy, *case.speed]
    for index, judged in enumerate(every, 1):
        _add_judged(suite, case, judged, index)


def _add_findings(suite: Element, case: CaseResult) -> None:
    name = f"{clean_line(case.case)}.structure"
    if not case.findings:
        _test(suite, name, "structure")
    found = sorted(case.findings, key=lambda finding: finding.rule)
    for rule, group in groupby(found, key=lambda finding: finding.rule):
        lines = [clean_line(str(finding)) for finding in group]
        test = _test(suite, name, rule)
        _outcome(test, "failure", "structure", lines[0] if len(lines) == 1 else f"{len(lines)} findings", lines)


def _add_step(suite: Element, case: str, step: StepResult) -> None:
    test = _test(suite, f"{case}.function", step.step, step.seconds)
    if not step.passed:  # a step that did not end by itself is an error, one that says it failed a failure
        kind = "error" if step.exit_code is None else "failure"
        _outcome(test, kind, "function", step.reason, [" ".join(step.command), step.reason])
    for tag, path in (("system-out", step.stdout), ("system-err", step.stderr)):
        end = read_log(path, _BYTES).tail(_LINES, _CHARACTERS)
        if end:
            SubElement(test, tag).text = end


def _add_judged(suite: Element, case: CaseResult, judged: Accuracy | Speed, index: int) -> None:
    part, what = ("speed", judged.what) if isinstance(judged, Speed) else ("accuracy", judged.against)
    test = _test(suite, f"{clean_line(case.case)}.{part}", f"{index} {what}")
    if judged.verdict is Verdict.FAIL:
        _outcome(test, "failure", part, judged.reason)
    elif judged.verdict is Verdict.NONE:
        _outcome(test, "skipped", part, judged.reason)
    elif judged.verdict is Verdict.INCONCLUSIVE:
        _outcome(test, "error", "inconclusive", judged.reason)
    else:
        SubElement(test, "system-out").text = clean_line(judged.reason)


def _test(suite: Element, group: str, name: str, seconds: float = 0.0) -> Element:
    return SubElement(suite, "testcase", classname=group, name=clean_line(name), time=f"{seconds:.3f}")


def _outcome(test: Element, tag: str, kind: str, message: str, lines: Sequence[str] = ()) -> None:
    attributes = {"message": clean_line(message)} | ({"type": kind} if tag != "skipped" else {})
    SubElement(test, tag, attributes).text = clean("\n".join(lines)) or None


def _count(element: Element, tests: Iterable[Element]) -> None:
    tags = [[child.tag for child in test] for test in tests]
    element.set("tests", str(len(tags)))
    for plural, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        element.set(plural, str(sum(tag in own for own in tags)))
