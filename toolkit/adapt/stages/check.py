"""The check of a pull request, on exactly the files that git would take."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

from engine import TecoInferError
from model_config.check import main as check_cases
from tecoinfer_modelzoo.interrupts import INTERRUPTED
from tecoinfer_modelzoo.trees import below
from toolkit.adapt.folder import folder_name
from toolkit.adapt.stage import Stage
from toolkit.adapt.work import FAILED, Outcome, Work, digest

FOLDER, FILE = "check", "check.json"


class Check(Stage):
    """Run ``teco check`` on the case."""

    name, title = "check", "check"
    needs = ("document",)

    def inputs(self, work: Work) -> Mapping[str, Any]:
        """All files of the model's folder that are not made by a run, and the case."""
        from tecoinfer_modelzoo.files import hash_files

        folder = work.request.root / folder_name(work)
        files = [one for one in sorted(below(folder)) if one.is_file()] if folder.is_dir() else []
        kept = [one for one in files if "__pycache__" not in one.parts and not one.name.endswith(".onnx")]
        return {"files": digest([(str(one.relative_to(folder)), hash_files(one)) for one in kept]), "case": work.case}

    def run(self, work: Work) -> Outcome:
        """Return the verdict with its reasons.

        Raises TecoInferError if the check cannot be run, KeyboardInterrupt if Ctrl-C ended it.
        """
        folder = work.folder / FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / FILE
        file.unlink(missing_ok=True)
        said = io.StringIO()
        with redirect_stdout(said), redirect_stderr(said):
            code = check_cases(
                [work.request.name, "--json", str(file), "--work_dir", str(folder), "--no_cache"], work.request.root
            )
        (folder / "check.txt").write_text(said.getvalue(), encoding="utf-8", errors="backslashreplace")
        if code == INTERRUPTED:  # the check ends its steps and returns
            raise KeyboardInterrupt
        if not file.is_file():
            raise TecoInferError(f"teco check ended with {code}: {said.getvalue().strip().splitlines()[-1:]}")
        found = json.loads(file.read_text(encoding="utf-8"))
        verdict, reasons = _verdict(found, code)
        line = f"{verdict}: teco check {work.request.name}"
        line += f"; {len(reasons)} findings, the first: {reasons[0]}" if reasons else ""
        facts = {"verdict": verdict, "code": code, "reasons": reasons}
        return Outcome(line, facts, [file], reasons, "done" if code == 0 else FAILED)


def _verdict(found: Mapping[str, Any], code: int) -> tuple[str, list[str]]:
    """Return the verdict of the only case, and the reasons if it is not PASS."""
    cases = found.get("cases", [])
    reasons = [*map(str, found.get("problems", [])), *(str(one) for case in cases for one in case["reasons"])]
    return (str(cases[0]["verdict"]) if cases else "FAIL"), reasons if code else []
