"""Continuation of texts: requests in the form of OpenAI's completions, by a task that can stream."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

from engine import Engine
from serve.errors import ServeError
from utils.tasks.base import Task, overrides
from utils.tasks.options import Options

FLAGS = {
    "max_tokens": "max_new_tokens",
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "stop": "stop",
    "seed": "seed",
    "repetition_penalty": "repetition_penalty",
}
"""Fields of a request, and the flags of the task that they set."""


def complete(
    task: Task | None, engines: Mapping[str, Engine], request: Mapping[str, Any], emit: Callable[[str], bool]
) -> dict[str, Any]:
    """Continue the prompt of a request; return the whole text, the reason of its end, and numbers of tokens.

    Args:
        task: of the model. engines: by name. request: checked fields (:mod:`serve.http.completions`).
        emit: gets the text piece by piece; returns ``False`` to end it early.

    Raises:
        ServeError: The task does not generate text. ConfigError, DataError: A value or the prompt cannot be used.
    """
    if not can_stream(task):
        raise ServeError("unsupported", "this model does not continue texts")
    assert task is not None  # noqa: S101 -- as can_stream says
    found = _with(task, request).stream(engines, request["prompt"], emit)
    return {
        "text": found.text,
        "finish_reason": "stop" if found.complete else "length",
        "prompt_tokens": found.prompt_tokens,
        "completion_tokens": found.tokens,
    }


def can_stream(task: Task | None) -> bool:
    """Return whether a task continues texts."""
    return task is not None and overrides(type(task), "stream")


def _with(task: Task, request: Mapping[str, Any]) -> Task:
    """Return the task with the options of a request; a temperature of 0 takes the best token."""
    known = {flag.key for flag in task.flags}
    changes = {flag: request[name] for name, flag in FLAGS.items() if flag in known and request.get(name) is not None}
    if "temperature" in changes and "do_sample" in known:
        changes["do_sample"] = changes["temperature"] > 0
        if not changes["do_sample"]:
            del changes["temperature"]
    found = copy.copy(task)
    found.state = task.state  # which copies leave out
    found.options = Options(**{**vars(task.options), **changes})
    found.check()
    return found
