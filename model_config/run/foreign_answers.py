"""Process that answers queries about contributed code: ``python -m model_config.run.foreign_answers QUESTION``.

``QUESTION`` is a JSON file: ``kind`` (a key of :data:`KINDS`), ``root`` (the repository with the ``contrib/`` to use),
and the arguments of that kind. The answer is JSON on standard output; other output goes to standard error.

This process imports contributed code and is not trusted: :mod:`.foreign` limits it and validates its answer.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from engine import TecoInferError
from tecoinfer_modelzoo.text import typed_reason


def flags(question: Mapping[str, Any]) -> dict[str, Any]:
    """Return the flags of each script of a task; ``None`` if the name is not a task.

    Args:
        question: ``module`` and ``name`` of the task.
    """
    from utils.pipeline.flags.options import script_flags
    from utils.tasks.base import SCRIPTS
    from utils.tasks.find import add_contrib
    from utils.tasks.legacy import is_task

    add_contrib(Path(question["root"]))
    found: Any = getattr(importlib.import_module(question["module"]), question["name"], None)
    if not is_task(found):
        return {"flags": None}
    return {"flags": {script: sorted({flag.name for flag in script_flags(found, script)}) for script in SCRIPTS}}


def metric(question: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metric of the records of two runs, as :mod:`model_config.judge.foreign` requests it.

    Args:
        question: ``definition`` of the metric; ``records``, the files of both runs, or none; ``seed`` of
            :func:`model_config.judge.gate.judge`.
    """
    from model_config.judge.foreign import said_of

    return said_of(question["definition"], Path(question["root"]), question["records"], question["seed"])


def differing(question: Mapping[str, Any]) -> dict[str, Any]:
    """Return the samples whose records differ, as :mod:`model_config.run.drawn` requests them.

    Args:
        question: ``definition`` of the metric or ``None``; ``records``, the files of both runs; ``most`` samples.
    """
    from model_config.run.differing import differing as differing_samples
    from utils.metrics.definition import metric_from_json

    target, baseline = map(Path, question["records"])
    definition = question["definition"]
    metric = None if definition is None else metric_from_json(definition, Path(question["root"]))
    return {"samples": differing_samples(target, baseline, metric, question["most"])}


KINDS: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "differing": differing,
    "flags": flags,
    "metric": metric,
}
"""Kinds of questions and the functions that answer them."""


def main() -> None:
    """Answer the question and exit immediately, without waiting for threads of contributed modules."""
    answer = os.dup(1)
    os.dup2(2, 1)
    question = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    try:
        found = KINDS[question["kind"]](question)
    except TecoInferError as error:
        found = {"error": str(error)}
    except (Exception, SystemExit) as error:  # noqa: BLE001 -- contributed code may raise anything
        found = {"error": typed_reason(error)}
    with open(answer, "w", encoding="utf-8") as file:
        json.dump(found, file)
    os._exit(0)


if __name__ == "__main__":
    main()
