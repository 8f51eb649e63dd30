"""Export of all forms by the script that the model's folder gets, each compared with the source."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine import ConfigError, ModelError
from toolkit.adapt.running import FORMS_FOLDER
from toolkit.adapt.signature import signature_of, usual_sizes
from toolkit.adapt.sources import Export, find_source
from toolkit.adapt.sources.base import run_script, with_paths
from toolkit.adapt.sources.onnx_files import copied_source
from toolkit.adapt.stage import Stage
from toolkit.adapt.work import NOTED, Outcome, Work
from utils.export.forms import DYNAMIC, FORMS, HALF, STATIC
from utils.export.notes import ERROR

SCRIPT = "export_onnx.py"

SUFFIXES = {STATIC: "", DYNAMIC: "_dyn", HALF: "_float16_dyn"}
"""Ends of the files' names by form."""

STAGING = "export"
"""Folder of the working folder with the script and its files."""


class ExportForms(Stage):
    """Write the export script and run it."""

    name, title, needs = "export", "export", ("take_in",)

    def inputs(self, work: Work) -> Mapping[str, Any]:
        """What the source reads."""
        return find_source(work.request.model).inputs(work)

    def run(self, work: Work) -> Outcome:
        """Run the script; the static or the dynamic form has to be written, float16 is reported."""
        plan = find_source(work.request.model).export(work)
        script = staged(plan, work.folder / STAGING)
        forms = work.folder / FORMS_FOLDER
        shutil.rmtree(forms, ignore_errors=True)
        words = [word for key, value in plan.params.items() for word in (f"--{key}", str(value))]
        code, _, error = run_script(script, ["--out", str(forms), *words], work.request.root)
        files = {form: forms / f"{plan.stem}{SUFFIXES[form]}.onnx" for form in FORMS}
        written = {form: file for form, file in files.items() if file.is_file()}
        if not {STATIC, DYNAMIC} & set(written):
            raise ModelError(
                f"no form can be written: {error.removeprefix('error: ') or f'{SCRIPT} ended with {code}'}"
            )
        errors = {form: _error_of(file) for form, file in written.items()}
        ckpt = written.get(DYNAMIC, written.get(STATIC, script))
        facts = {
            "stem": plan.stem,
            "params": dict(plan.params),
            "forms": {form: file.name for form, file in written.items()},
            "errors": errors,
            "ckpt": ckpt.name,
            "missing": error if len(written) < len(FORMS) else "",
            "bytes": ckpt.stat().st_size,
            "sizes": _sizes(ckpt, work),
            **signature_of(ckpt),
        }
        shown = ", ".join(f"{form} {errors[form]}" for form in written)
        line = f"{len(written)} files, largest relative error: {shown}"
        missing = [form for form in FORMS if form not in written]
        line += f"; without {', '.join(missing)}: {error}" if missing else ""
        return Outcome(line, facts, list(written.values()), status=NOTED if missing else "done")


def staged(plan: Export, folder: Path) -> Path:
    """Write an export script with its files into an empty folder and return it. Raises ConfigError if that fails."""
    try:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        copy_files(plan, folder)
        script = folder / SCRIPT
        script.write_text(with_paths(plan.script, ""), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{folder} cannot be written: {error.strerror}; choose another --out") from error
    return script


def copy_files(plan: Export, folder: Path) -> None:
    """Copy the files that the export needs into a folder."""
    for name, file in plan.files.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix == ".onnx":
            copied_source(file, target)
        else:
            shutil.copyfile(file, target)


def _error_of(file: Path) -> str:
    from engine.onnx import load_model, metadata

    return metadata(load_model(file)).get(ERROR, "not run")


def _sizes(file: Path, work: Work) -> dict[str, int]:
    from engine.onnx import load_model

    return usual_sizes(load_model(file), work.request.dims, file)
