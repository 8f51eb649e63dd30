"""Runs a training script under the profiler: ``python -m torch_sdaa.profiling.child ANSWER STEPS SCRIPT ARGUMENTS``.

The script runs as ``python -m torch_sdaa.run`` runs it, untouched, with CUDA's names on the card, until it ends or so
many optimizer steps have returned. What was seen goes to files in the folder ``ANSWER``.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

from torch_sdaa.profiling.collect import Collector
from torch_sdaa.profiling.record import record
from torch_sdaa.profiling.timeline import chrome_trace
from torch_sdaa.transfer import runner, switch

RECORD, TRACE, FAILURE, STEPS = "record.json", "trace.json", "failure.txt", "steps"
"""Files of the folder: what was seen, why the script failed, and as many bytes as steps were done."""


class Enough(BaseException):
    """The steps asked for are done, or the time is over; no ``except Exception`` of a script is to meet it."""


def _quiet(of: threading.ExceptHookArgs) -> None:
    """Let a thread of the script in which the last step was done end without a word, as the script itself does."""
    if of.exc_type is not Enough:
        threading.__excepthook__(of)


def _over(*_: Any) -> None:
    raise Enough("it took longer than --timeout")


def profiled(script: str, arguments: list[str], steps: int, answer: Path) -> str:
    """Run a script under the profiler, and write what was seen; return why it failed ("": it did not).

    What a script did before it failed is written where a step of its optimizers had returned.
    """

    def stepped(count: int) -> None:
        with (answer / STEPS).open("ab") as file:
            file.write(b".")
        if steps and count >= steps:
            raise Enough

    collector, why = Collector(stepped), ""
    signal.signal(signal.SIGTERM, _over)
    threading.excepthook = _quiet
    sys.argv = [script, *arguments]
    collector.start()
    try:
        runner.run_as_main(script)
    except Enough as enough:
        ended, why = ("steps", "") if not enough.args else ("time", str(enough))
    except SystemExit as stopped:
        ended = "end"
        if stopped.code not in (None, 0):
            why = f"it ended with {stopped.code!r}"
    except KeyboardInterrupt:  # who waits for this process had the same Ctrl-C, and says so
        raise SystemExit(130) from None
    except Exception as error:  # noqa: BLE001 -- a script raises what it likes, and it is told
        ended = "failed"
        inner = runner.inner(error.__traceback__, script)
        traceback.print_exception(type(error), error, inner)
        why = traceback.format_exception_only(error)[-1].strip().partition("\n")[0]
    else:
        ended = "end"
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    found = collector.stop()
    if why and not found.steps:
        return why
    whole = {**record(found), "script": script, "arguments": arguments, "ended": ended, "failed": why}
    (answer / TRACE).write_text(json.dumps(chrome_trace(found)), encoding="utf-8")
    part = answer / f"{RECORD}.part"  # who ends this process meanwhile finds no half of it
    part.write_text(json.dumps(whole), encoding="utf-8")
    part.replace(answer / RECORD)
    return why


def main() -> None:
    """Run what the arguments name."""
    answer, steps, script, *arguments = sys.argv[1:]
    switch.start()
    why = profiled(script, arguments, int(steps), Path(answer))
    if why:
        (Path(answer) / FAILURE).write_text(why, encoding="utf-8")
    sys.stdout.flush()
    sys.stderr.flush()
    if why:
        sys.exit(1)


if __name__ == "__main__":
    main()
