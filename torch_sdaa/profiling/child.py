"""Run a training script under the profiler: ``python -m torch_sdaa.profiling.child ANSWER STEPS SCRIPT ARGUMENTS``.

The script runs as with ``python -m torch_sdaa.run``, with CUDA's names redirected, until it ends or the given number of
optimizer steps has returned. The profile is written to files in the folder ``ANSWER``.
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
"""Files in the folder: profile, trace, error of the script, and one byte for each finished step."""


class Enough(BaseException):
    """The steps are done, or the time is over; not caught by ``except Exception`` in the script."""


def _quiet(of: threading.ExceptHookArgs) -> None:
    """Let a thread of the script that finished the last step end silently, like the script itself."""
    if of.exc_type is not Enough:
        threading.__excepthook__(of)


def _time_over(*_: Any) -> None:
    raise Enough("it took longer than --timeout")


def profiled(script: str, arguments: list[str], steps: int, answer: Path) -> str:
    """Run a script under the profiler, and write the profile; return the error of the script, or "".

    After an error, the profile is written if a step had returned.
    """

    def stepped(count: int) -> None:
        with (answer / STEPS).open("ab") as file:
            file.write(b".")
        if steps and count >= steps:
            raise Enough

    collector, why = Collector(stepped), ""
    signal.signal(signal.SIGTERM, _time_over)
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
    except KeyboardInterrupt:  # the parent process received the same Ctrl-C and reports it
        raise SystemExit(130) from None
    except Exception as error:  # noqa: BLE001 -- a script may raise any error, which is reported
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
    part = answer / f"{RECORD}.part"  # renamed when complete, so that no partial file is read
    part.write_text(json.dumps(whole), encoding="utf-8")
    part.replace(answer / RECORD)
    return why


def main() -> None:
    """Profile the script in the arguments."""
    answer, steps, script, *arguments = sys.argv[1:]
    switch.start()
    runner.reach_children()
    why = profiled(script, arguments, int(steps), Path(answer))
    if why:
        (Path(answer) / FAILURE).write_text(why, encoding="utf-8")
    sys.stdout.flush()
    sys.stderr.flush()
    if why:
        sys.exit(1)


if __name__ == "__main__":
    main()
