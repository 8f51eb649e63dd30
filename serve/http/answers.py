"""Answers to the files of one request."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from serve.errors import ServeError
from serve.http.forms import File
from serve.repository import ServedModel, Timing


async def answered(model: ServedModel, files: Sequence[File], rendered: bool) -> tuple[dict[str, Any], Timing]:
    """Return the answers and the timing of one file or several.

    Files of a form are answered independently, in one batch where the model allows that; their answers have the name of
    the file, and times are those of the file that took longest.

    Raises the ServeError of the first file that has one, with its name.
    """
    if len(files) == 1 and not files[0].name:
        return await model.answer(files[0].content, files[0].ending, rendered=rendered)
    calls = (model.answer(file.content, file.ending, rendered=rendered) for file in files)
    results = await asyncio.gather(*calls, return_exceptions=True)
    entries, timings, times = list[dict[str, Any]](), list[Timing](), list[dict[str, float]]()
    for file, result in zip(files, results, strict=True):
        if isinstance(result, ServeError):
            raise ServeError(result.kind, f"{file.name}: {result}")
        if isinstance(result, BaseException):
            raise result
        reply, timing = result
        entries += [{**entry, "name": file.name} for entry in reply["answers"]]
        timings.append(timing)
        times.append(reply["timing"])
    longest = {name: max(one[name] for one in times) for name in times[0]}
    whole = Timing(*(max(getattr(one, name) for one in timings) for name in ("queue_s", "compute_s", "batch")))
    return {"answers": entries, "timing": longest}, whole
