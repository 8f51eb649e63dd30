"""The README of an adapted model: the prescribed headings, filled with facts and measured figures.

What only a person can say is an open item of a task list (``- [ ]``), which the check refuses while it stands.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from string import Template
from typing import Any

from tecoinfer_modelzoo.files import hash_files
from toolkit.adapt.running import flags_of, task_of
from toolkit.adapt.signature import described
from toolkit.adapt.sources.base import TEMPLATES, Export
from toolkit.adapt.work import Work
from utils.export.forms import DYNAMIC, HALF, STATIC

_FORMS = {
    STATIC: "static: one size, batch 1",
    DYNAMIC: "dynamic batch, float32",
    HALF: "dynamic batch, float16",
}


def questions(work: Work, plan: Export) -> list[str]:
    """Return what only a person can say, with the flag that says it; empty if all is known."""
    taken, data = work.facts("take_in"), work.facts("data")
    found = []
    if not taken["publisher"]:
        found.append("Who published this model, with a link? (`--source TEXT`)")
    if not taken["licence"] and not taken["random"]:
        found.append("Which licence do the weights have? (`--licence NAME`)")
    if plan.is_large and not work.request.weights_url:
        size = f"{_size(plan)} are too large for git"
        found.append(f"Where are the weights `{plan.weights}` downloaded? {size}. (`--weights_url URL`)")
    if data["real"] and not data["licence"]:
        found.append("Where are the data from, and under which terms? (`--data_source TEXT`)")
    is_elsewhere = data["real"] and not data["copied"] and data["place"].startswith("/")
    if is_elsewhere and data["licence"] and "://" not in data["licence"]:
        found.append("Where are the data downloaded? They are too large for git. (`--data_source TEXT`, with a link)")
    return found


def readme(work: Work, plan: Export, folder: str, install: str) -> str:
    """Return the text of the README."""
    export, data, task = work.facts("export"), work.facts("data"), task_of(work)
    text = Template((TEMPLATES / "README.md.tmpl").read_text(encoding="utf-8"))
    open_items = questions(work, plan)
    words = {
        "title": str(work.facts("take_in")["title"]),
        "about": _about(work),
        "facts": _rows(_facts(work)),
        "open": "\n#### Open\n\n" + "".join(f"- [ ] {one}\n" for one in open_items) if open_items else "",
        "install": install,
        "folder": folder,
        "needs": "Only for exporting (2.3); inference does not need it:" if plan.requirements else "There are none:",
        "export_words": "".join(f" --{key} {shlex.quote(str(value))}" for key, value in export["params"].items()),
        "export_text": _export_text(work, plan),
        "forms": _rows(
            (f"`{file}`", _FORMS[form], str(export["errors"][form])) for form, file in export["forms"].items()
        ),
        "export_flags": _rows(plan.flags),
        "data": _data(work),
        "ckpt": str(export["ckpt"]),
        "batch": str(work.request.batch),
        "single_words": _path_words(data["single"]),
        "multi_words": _path_words(data["multi"]),
        "valid_words": _path_words(data["place"]),
        "answer": _answer(work),
        "data_help": task.data_help or "the samples",
        "flags": _rows(_flags(work)),
        "metric": _metric(work),
        "measured": _measured(work),
    }
    return text.substitute(words).replace("\n\n\n", "\n\n")


def _size(plan: Export) -> str:
    return f"{plan.bytes / 1e6:.1f} MB"


def _export_text(work: Work, plan: Export) -> str:
    """Return what the export script does, and where large weights come from."""
    if not plan.is_large or not work.request.weights_url:
        return plan.text
    content = hash_files(plan.files[plan.weights])
    where = f"`{plan.weights}` ({_size(plan)}) is not in git. If it is missing, the script downloads it from"
    return f"{plan.text}\n\n{where} <{work.request.weights_url}>, and compares its SHA-256 with `{content}`."


def _path_words(place: str) -> str:
    return f" --data_path {shlex.quote(place)}" if place else ""


def _rows(rows: Iterable[Iterable[str]]) -> str:
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in rows)


def _about(work: Work) -> str:
    taken, export, task = work.facts("take_in"), work.facts("export"), work.facts("task")
    what = f"A model for the task `{task['meant']}` ({task['reason']})."
    inputs = ", ".join(map(described, export["inputs"]))
    outputs = ", ".join(map(described, export["outputs"]))
    lines = [f"{what} Inputs: {inputs}. Outputs: {outputs}."]
    if taken["random"]:
        lines.append("**It has random weights: it is for functional and speed checks only; its answers mean nothing.**")
    if not work.facts("data")["real"]:
        lines.append(
            "**Its case is functional: random inputs, on which every target has to compute what target `onnx` "
            "computes. Its metric says nothing about the model.**"
        )
    return "\n\n".join(lines)


def _facts(work: Work) -> list[tuple[str, str]]:
    taken, export = work.facts("take_in"), work.facts("export")
    rows = [("publisher", taken["publisher"])] if taken["publisher"] else []
    if taken["licence"]:
        read_in = "" if taken["licence_from"].startswith("--") else f" ({taken['licence_from']})"
        rows.append(("licence", f"{taken['licence']}{read_in}"))
    rows += [(key, value) for key, value in taken["about"].items()]
    rows.append(("parameters", f"{export['weights']:,}"))
    rows.append(("nodes", f"{export['nodes']} of {len(export['operators'])} operators, opset {export['opset']}"))
    if export["labels"]:
        rows.append(("labels", f"{export['labels']}, in the files' metadata"))
    return rows


def _data(work: Work) -> str:
    data = work.facts("data")
    if not data["real"]:
        flags = " ".join(f"`{one}`" for one in data["flags"].get("dim", []))
        sizes = f", with the sizes {flags}" if flags else ""
        return (
            f"None is needed: {data['samples']} random samples are drawn from the signature of the model (`--random`, "
            f"`--seed`){sizes}. For a metric that means something, give labelled data by `--data_path`, and leave "
            "`--random` out."
        )
    where = {True: "is fetched at run time by `teco fetch`", False: "is in this folder"}[
        data["place"].startswith("fetch:")
    ]
    if data["place"].startswith("/"):
        where = "is not part of the repository"
    source = f" Source: {data['licence']}." if data["licence"] else ""
    lines = "\n".join(f"- {line}" for line in data["preview"])
    return f"`{data['place']}` {where}: {data['samples']} samples.{source}\n\nThe first ones:\n\n{lines}"


def _flags(work: Work) -> list[tuple[str, str, str]]:
    """Return the rows of the flags whose defaults are this model's."""
    task = task_of(work)
    known = {flag.key: flag for flag in task.flags}
    rows = []
    for key, value in flags_of(work).items():
        what = known[key].help if key in known else "set the sizes of a symbolic dimension" if key == "dim" else ""
        words = " ".join(map(str, value)) if isinstance(value, list) else str(value)
        rows.append((f"`--{key}`", what, f"`{words}`"))
    return rows


def _answer(work: Work) -> str:
    found = work.facts("document").get("answer")
    return f"Its answer to the first sample, on target `onnx`:\n\n```text\n{found}\n```" if found else ""


def _metric(work: Work) -> str:
    found = work.facts("onnx")
    if not found:
        return ""
    better = "higher" if found["higher_is_better"] else "lower"
    return f"`{found['metric_name']}` over {found['samples']} samples; {better} is better."


def _measured(work: Work) -> str:
    """Return the tables of metrics and of simulated times, as far as they were measured."""
    parts = [_metrics(work), _times(work)]
    return "\n\n".join(part for part in parts if part) or "The figures follow when the model was measured."


def _metrics(work: Work) -> str:
    baseline, card, others = work.facts("onnx"), work.facts("sdaa"), work.facts("targets")
    if not baseline:
        return ""
    rows = [("`onnx` (the baseline)", "float32", f"{baseline['metric']:.6g}", "")]
    if card:
        nodes = f"{len(card['nodes'])} nodes stay float32" if card["nodes"] else ""
        rows.append(("`sdaa` (the simulated card)", "float16", f"{card['metric']:.6g}", nodes))
    for one in others.get("rows", []):
        metric = "not run" if one["metric"] is None else f"{one['metric']:.6g}"
        rows.append((f"`{one['target']}`", one["dtype"], metric, one["reason"]))
    return f"| target | precision | {baseline['metric_name']} | |\n|---|---|---|---|\n{_rows(rows)}"


def _times(work: Work) -> str:
    found: Mapping[str, Any] = work.facts("tecoexec")
    if not found.get("rows"):
        return ""
    rows = [(str(one["batch"]), f"{one['latency_ms']:.3g} ms", f"{one['throughput']:.0f}") for one in found["rows"]]
    head = "| batch of the card | latency (simulated) | samples/s (simulated) |\n|---|---|---|"
    return f"Times of the simulated card in float16, by `tecoexec`; no real card was measured:\n\n{head}\n{_rows(rows)}"
