"""Guess of the task, with its reason and the alternatives; a person at a terminal is asked once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine import ConfigError
from toolkit.adapt.guesses import GENERIC, Guess, guesses
from toolkit.adapt.running import task_place
from toolkit.adapt.stage import Stage
from toolkit.adapt.work import Outcome, Work
from utils.tasks.find import find_task, tasks


class ChooseTask(Stage):
    """Choose the task: ``--task``, an answer, what the source states, or the generic task."""

    name, title, needs = "task", "task", ("take_in", "export")

    def inputs(self, work: Work) -> Mapping[str, Any]:
        """What the user says, and whether there are data."""
        return work.request.part("task", "domain") | {"data": bool(work.request.data)}

    def run(self, work: Work) -> Outcome:
        """Return the task of the case (``task``) and the model's own (``meant``), which differ without data."""
        taken, known = work.facts("take_in"), tasks()
        found = [one for one in guesses(work.facts("export"), taken["task"], taken["reason"]) if one.task in known]
        meant = _chosen(work, found)
        task = find_task(meant.task)
        if task.models:
            raise ConfigError(f"task {task.name} runs several models together; adapt takes one: use --task {GENERIC}")
        case = task if work.request.data else find_task(GENERIC)
        others = [one for one in found if one.task != task.name]
        module, name = task_place(case)
        facts = {
            "task": case.name,
            "meant": task.name,
            "domain": work.request.domain or task.domain,
            "module": module,
            "class": name,
            "reason": meant.reason,
            "others": [{"task": one.task, "reason": one.reason} for one in others],
        }
        line = f"{task.name}: {meant.reason}"
        if case is not task:
            line += f"; without --data a functional case by task {case.name}, on random inputs"
        if others and not meant.certain:
            line += f"; or --task {' or '.join(one.task for one in others)}"
        return Outcome(line, facts, notes=[f"{one.task}: {one.reason}" for one in others])


def _chosen(work: Work, found: list[Guess]) -> Guess:
    """Return the chosen task; ``found``: the guesses, the best first."""
    if work.request.task:
        task = find_task(work.request.task)
        return Guess(task.name, "--task", True)
    if found[0].certain:
        return found[0]
    names = [one.task for one in found]
    question = "which task is it? " + "; ".join(f"{one.task}: {one.reason}" for one in found)
    answer = work.ask(question, names, names[0])
    if answer is not None:
        reasons = {one.task: one.reason for one in found}
        return Guess(answer, reasons.get(answer, "so it was answered"), True)
    return next(one for one in found if one.task == GENERIC)
