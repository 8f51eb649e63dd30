"""The model's folder and its case, written from the facts of the stages; what was edited by hand is kept."""

from __future__ import annotations

import hashlib
import re
import shutil
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine import ConfigError
from tecoinfer_modelzoo import has_packages
from tecoinfer_modelzoo.distribution import readme_install
from tecoinfer_modelzoo.files import hash_files, write_file
from tecoinfer_modelzoo.trees import below
from tecoinfer_modelzoo.yaml_files import YamlError, yaml_text
from toolkit.adapt.readme import questions, readme
from toolkit.adapt.running import DATA_FOLDER, flags_of, task_of
from toolkit.adapt.sources import find_source
from toolkit.adapt.sources.base import Export, rendered, with_paths
from toolkit.adapt.stages.export import SCRIPT, copy_files
from toolkit.adapt.stages.passes import used_pass
from toolkit.adapt.work import Work
from toolkit.scaffold import INSTALLED, PATHS, append_case, check_case, check_names, keywords
from toolkit.zoo import PLACES
from utils.fetch.weights import keep_weights
from utils.tasks.base import Task

SCRIPTS = {
    "valid": ("example_valid.py", "Evaluate {name}: the metric of record, and timing."),
    "single": ("example_single_batch.py", "Run {name} on one sample."),
    "multi": ("example_multi_batch.py", "Run {name} on several samples."),
}
"""File and docstring of each script."""


@dataclass
class Written:
    """Result of :func:`write_folder`.

    Attributes:
        folder, config: relative to the root. files: the files there. kept: those that were edited by hand, and are as
            they were. open: questions that only a person can answer.
    """

    folder: str
    config: str
    files: list[Path] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    open: list[str] = field(default_factory=list)


def folder_name(work: Work) -> str:
    """Return the model's folder, relative to the root."""
    place = PLACES["contrib" if work.request.contrib else "core"]
    return f"{place.folder}/{work.facts('task')['domain']}/{work.request.name}"


def write_folder(work: Work) -> Written:
    """Write or update the folder and the case.

    Raises:
        ConfigError: a name is taken, a file cannot be written, or the case was edited and cannot be found.
    """
    request, root = work.request, work.request.root
    name = folder_name(work)
    config = PLACES["contrib" if request.contrib else "core"].config
    plan = find_source(request.model).export(work)
    if request.weights_url and not plan.is_large:
        raise ConfigError(f"--weights_url {request.weights_url}: no weights are too large for git; leave it out")
    found = Written(name, config, open=questions(work, plan))
    if not any(place.startswith(f"{name}/") for place in work.written):
        check_names(str(work.facts("task")["domain"]), request.name, root)
    if not work.case:
        check_case(request.name, root)
    try:
        wanted = _contents(work, plan, name)
        _remove_others(work, set(wanted))
        for place, content in wanted.items():
            _put(work, place, content, found)
        if plan.is_large:  # the check runs in a copy of what is in git
            keep_weights(root / name / plan.weights)
        _put_case(work, root / config, found)
    except OSError as error:
        raise ConfigError(f"{error.filename}: {error.strerror}; check the folder {root / name}") from error
    return found


def _contents(work: Work, plan: Export, name: str) -> dict[str, bytes]:
    """Return the content of every file, by its path relative to the root."""
    request, task = work.request, task_of(work)
    paths = PATHS["contrib" if request.contrib else "core"] if has_packages(request.root) else INSTALLED
    staging = work.folder / "staged"
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True)
    copy_files(plan, staging)
    if work.facts("data").get("copied"):
        shutil.copytree(work.folder / DATA_FOLDER, staging / DATA_FOLDER)
    texts = {SCRIPT: with_paths(plan.script, paths)}
    for script, (file, doc) in SCRIPTS.items():
        texts[file] = with_paths(_script(work, task, script, doc), paths)
    install = "python -m pip install ." if has_packages(request.root) else readme_install()
    lines = [f"# For {SCRIPT} only: inference needs just the core install ({install})."]
    none = f"# Nothing beyond the core install ({install}): the model is an ONNX file."
    texts["requirements.txt"] = "\n".join([*lines, *plan.requirements] if plan.requirements else [none]) + "\n"
    if plan.weights and not plan.is_large:
        texts[".gitignore"] = f"# The weights belong to the repository.\n!/{plan.weights}\n"
    passes = used_pass(work)
    if passes is not None:
        texts[pass_name(work)] = passes.read_text(encoding="utf-8")
    texts["README.md"] = readme(work, plan, name, install)
    for file, text in texts.items():
        (staging / file).write_text(text, encoding="utf-8")
    return {
        f"{name}/{one.relative_to(staging).as_posix()}": one.read_bytes() for one in below(staging) if one.is_file()
    }


def pass_name(work: Work) -> str:
    """Return the name of the pass file in the model's folder."""
    return f"{work.request.name}_pass.py"


def _script(work: Work, task: type[Task], script: str, doc: str) -> str:
    """Return the text of a script: a call with the defaults of this model."""
    facts, data = work.facts("task"), work.facts("data")
    place = data["place"] if script == "valid" else data[script]
    values: dict[str, Any] = {"ckpt": work.facts("export")["ckpt"]}
    # a path that only this machine has is in the case, not in a script
    values |= {"data_path": place} if place and not place.startswith("/") else {}
    values["batch_size"] = 1 if script == "single" else work.request.batch
    own = {flag.key for flag in task.flags if script not in flag.scripts}
    values |= {key: value for key, value in flags_of(work).items() if key not in own and value is not None}
    if used_pass(work) is not None:
        values["pass_path"] = pass_name(work)
    return rendered(
        "example.py",
        doc=doc.format(name=work.request.name),
        module=str(facts["module"]),
        task=str(facts["class"]),
        script=script,
        arguments=keywords(values),
    )


def _put(work: Work, place: str, content: bytes, found: Written) -> None:
    """Write a file, unless it was edited since it was written."""
    file, new = work.request.root / place, hashlib.sha256(content).hexdigest()
    found.files.append(file)
    if file.is_file():
        now = hash_files(file)
        if now != new and now != work.written.get(place):
            found.kept.append(place)
            return
    if not file.is_file() or hash_files(file) != new:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_file(file, content)
    work.written[place] = new


def _remove_others(work: Work, wanted: set[str]) -> None:
    """Remove files of an earlier run that are not wanted any more and were not edited, and folders left empty."""
    root = work.request.root
    for place in sorted(set(work.written) - wanted):
        file = root / place
        if file.is_file() and hash_files(file) == work.written[place]:
            file.unlink()
            with suppress(OSError):  # a folder that is not empty stays
                file.parent.rmdir()
                file.parent.parent.rmdir()
        del work.written[place]


# ------------------------------------------------------------------------------------------------------------ the case


def case_text(work: Work) -> str:
    """Return the entry of ``model.yaml``."""
    import yaml

    export, data = work.facts("export"), work.facts("data")
    forms = [form for form in ("static", "dyn", "float16_dyn") if form in export["forms"]]
    params = {**export["params"], **({} if len(forms) == 3 else {"forms": forms})}
    entry: dict[str, Any] = {
        "case_name": work.request.name,
        "run_dir": f"TecoInference/{folder_name(work)}",
        "run_export": {"run_file": SCRIPT, **({"params": params} if params else {})},
    }
    for script, (file, _) in SCRIPTS.items():
        place = data["place"] if script == "valid" else data[script]
        step: dict[str, Any] = {"ckpt": export["ckpt"], "batch_size": 1 if script == "single" else work.request.batch}
        step |= {"data_path": place} if place else {}
        step |= {"target": "sdaa", "dtype": "float16"}
        if used_pass(work) is not None:
            step["others"] = {"pass_path": pass_name(work)}
        entry[f"run_example_{script}"] = {"run_file": file, "params": step}
    text: str = yaml.safe_dump([entry], sort_keys=False, allow_unicode=True, width=1000)
    first, _, rest = text.partition("\n")
    return f"{first}\n  # {_said(work)}\n{rest}"


def _said(work: Work) -> str:
    if work.facts("take_in").get("random"):
        return "Functional only: random weights, whose answers mean nothing."
    if not work.facts("data")["real"]:
        return "Functional only: random inputs, on which the targets are compared with target onnx."
    return "The model's own weights on labelled data: the metric is that of the model."


def _put_case(work: Work, config: Path, found: Written) -> None:
    """Append the case, or replace it if it is as it was written; an edited one is kept."""
    text = case_text(work)
    if text == work.case and _entry(config, work.request.name) == text:
        return
    if not work.case:
        with ExitStack() as undo:
            append_case(config, text, work.request.name, work.request.root, undo)
            undo.pop_all()
    else:
        now = _entry(config, work.request.name)
        if now != work.case:
            found.kept.append(f"{found.config}: {work.request.name}")
            return
        whole = yaml_text(config)
        write_file(config, whole.replace(now, text, 1).encode())
    work.case = text


def _entry(config: Path, name: str) -> str:
    """Return the text of a case in a file; empty if it is not there."""
    try:
        whole = yaml_text(config)
    except (OSError, YamlError):
        return ""
    match = re.search(rf"^- case_name: {re.escape(name)}\n(?:(?![-#]).*\n?)*", whole, re.MULTILINE)
    return match[0].rstrip("\n") + "\n" if match else ""
