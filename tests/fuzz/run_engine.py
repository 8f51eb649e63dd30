"""Run a script on an engine that misbehaves at some calls: run_engine.py PLAN SCRIPT [arguments].

The plan is JSON: ``at``, the change of the results by number of the call, with the names of
:mod:`.odd_engines`; ``own_buffer``, whether calls return the same memory again; ``streams``;
``promises``, class variables that are set; ``wait``, additional milliseconds of a call.
"""

from __future__ import annotations

import json
import runpy
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from engine import Array, Engine, EngineSpec, open_engine, register
from engine.onnx import load_model, metadata, signature
from tests.fuzz.makers.odd_engines import ERRORS, HARMLESS, RESULTS

TARGET = "odd"


def odd_engine(plan: dict[str, Any]) -> type[Engine]:
    """Return the class of an engine that follows a plan, and otherwise computes like the baseline."""

    class Odd(Engine):
        def __init__(self, spec: EngineSpec) -> None:
            super().__init__(spec)
            model = load_model(spec.ckpt)
            self.bind(*signature(model))
            self.metadata = metadata(model)
            self.streams = plan["streams"]
            self._baseline = open_engine("onnx", EngineSpec(spec.ckpt))
            self._calls, self._lock = 0, threading.Lock()
            self._rooms: dict[int, Array] = {}

        def infer(self, inputs: list[Array]) -> Any:
            with self._lock:
                self._calls += 1
                way = plan["at"].get(str(self._calls), "")
            results: Any = [self._baseline(inputs)]
            if plan["own_buffer"]:
                results = [self._kept(results[0])]
            time.sleep(plan["wait"] / 1e3)
            if way in ERRORS:
                raise ERRORS[way]()
            return {**RESULTS, **HARMLESS}[way](results) if way else results

        def _kept(self, found: Array) -> Array:
            """Return an array in the memory of the last call: of this thread, if several compute at once."""
            key = threading.get_ident() if plan["streams"] > 1 else 0
            room = self._rooms.setdefault(key, np.empty((512, *found.shape[1:]), found.dtype))
            room[:] = np.nan
            room[: len(found)] = found
            return room[: len(found)]

    for promise in plan["promises"]:
        setattr(Odd, promise, True)
    return Odd


def main() -> None:
    """Register the engine and run the script."""
    register(TARGET, odd_engine(json.loads(sys.argv[1])))
    script = sys.argv[2]
    sys.argv = [script, *sys.argv[3:], "--target", TARGET]
    sys.path.insert(0, str(Path(script).parent))
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
