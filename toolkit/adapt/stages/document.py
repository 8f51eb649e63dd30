"""The folder again, with the measured figures, the pass file and an answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine import TecoInferError
from toolkit.adapt.folder import folder_name, write_folder
from toolkit.adapt.running import flags_of, model_file, task_of
from toolkit.adapt.stage import Stage
from toolkit.adapt.stages.export import SCRIPT
from toolkit.adapt.stages.scaffold import outcome
from toolkit.adapt.work import Outcome, Record, Work
from toolkit.api import predict

ANSWER = 300
"""Largest number of characters of the answer in the README."""


class Document(Stage):
    """Write the folder with all that was found."""

    name, title = "document", "document"
    needs = ("take_in", "export", "task", "data", "onnx", "sdaa", "targets", "passes", "tecoexec", "scaffold")

    def inputs(self, work: Work) -> Mapping[str, Any]:
        """Where the folder is, and whether somebody removed files."""
        place = work.request.root / folder_name(work)
        return work.request.part("contrib", "batch", "weights_url") | {"script": (place / SCRIPT).is_file()}

    def run(self, work: Work) -> Outcome:
        """Return what was written."""
        answer = _answer(work)
        work.records[self.name] = Record("", "", "", 0.0, {"answer": answer})  # for the README
        found = write_folder(work)
        made = outcome(f"{found.folder}: README, scripts and case have the measured figures", found)
        return Outcome(made.line, {**made.facts, "answer": answer}, made.files, made.notes, made.status)


def _answer(work: Work) -> str:
    """Return the answer to the first sample as text; empty if there is none."""
    data, task = work.facts("data"), task_of(work)
    flags = {key: value for key, value in flags_of(work).items() if key != "random"}
    own = {flag.key for flag in task.flags if "multi" not in flag.scripts}
    flags = {key: value for key, value in flags.items() if key not in own}
    flags |= {} if data["real"] else {"random": 1}
    single = str(data["single"])
    place = single if not single or single.startswith(("fetch:", "/")) else str(work.folder / single)
    try:
        found = predict(task, place or None, target="onnx", ckpt=model_file(work), batch_size=1, **flags)
    except TecoInferError:
        return ""
    return found[0].text[:ANSWER] if found else ""
