"""Ctrl-C at any moment of a fresh interpreter, once or twice, and SIGTERM and SIGHUP.

With --resume the same command is then run again: its metric is that of an uninterrupted run.
"""

from __future__ import annotations

import functools
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.fuzz.case import ROOT, Case, Outcome
from tests.fuzz.kinds.journals import RUNS, _metric

WARM = ("tecoinfer_modelzoo.files",)

LAUNCHER = """\
import os, signal, subprocess, sys, tempfile, time
delays, number, words = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
said = tempfile.TemporaryFile()
child = os.fork()
if child == 0:
    os.dup2(said.fileno(), 2)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.execv(sys.executable, [sys.executable, *words])
ours = time.monotonic() + 0.02
for delay in map(float, delays.split(",")):
    time.sleep(max(0.0, ours + delay - time.monotonic()))
    try:
        os.kill(child, number)
    except ProcessLookupError:
        break
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
said.seek(0)
text = said.read().decode(errors="backslashreplace")
# What the interpreter says before it has come to our code is not ours: it knows neither line nor exit code.
early = "KeyboardInterrupt" in text and "in _ended" not in text and "in _first" not in text
if early:
    text, code = "before our code began\\n", 130
sys.stderr.write(text)
if "--resume" in words:
    with open("again.txt", "w") as out, open("again.err", "w") as err:
        ended = subprocess.run([sys.executable, *words], stdout=out, stderr=err).returncode
    with open("again.txt") as out:
        print("again", ended, *[line.split()[1] for line in out if line.startswith("eval_metric ")])
    with open("again.err") as err:
        sys.stderr.write(err.read())
sys.exit(128 - code if code < 0 else code)
"""

OWN = ("--resume", "kept", "--worker_mode", "process", "--json", "result.json")
"""Optional flags that do not change the results."""


def make(rng: random.Random, folder: Path, number: int) -> Case:
    (folder / "launch.py").write_text(LAUNCHER)
    words = _words(rng)
    first = rng.choice((rng.uniform(0, 0.3), rng.uniform(0, 1.5), rng.uniform(0, 4)))
    times = [first] if rng.random() < 0.4 else [first, first + rng.choice((0.0, 0.005, 0.05, 0.3, rng.uniform(0, 1)))]
    which = rng.choice((2, 2, 2, 2, 2, 15, 1))
    delays = ",".join(f"{delay:.3f}" for delay in times)
    what = f"signal {which} after {delays} s: {' '.join(words)}"
    codes = frozenset({0, 130, 128 + which})
    metric = _clean(tuple(word for word in words if word not in OWN)) if "--resume" in words else ""
    return Case(("launch.py", delays, str(which), *words), what, lambda outcome: _judge(outcome, metric), codes=codes)


@functools.cache
def _clean(words: tuple[str, ...]) -> str:
    """Return the metric of an uninterrupted run."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([sys.executable, *words], cwd=folder, env=env, capture_output=True, text=True, check=True)
    return _metric(done.stdout)


def _judge(outcome: Outcome, metric: str) -> str | None:
    if metric:
        again = next((line for line in outcome.out.splitlines() if line.startswith("again ")), "never run again")
        if again != f"again 0 {metric}":
            return f"resumed: {again}; a clean run's metric is {metric}"
    count = outcome.err.count("interrupted")
    if count > 1 and outcome.code == 130:
        return f"it says {count} times that it was interrupted"
    return "Exception ignored" if "Exception ignored" in outcome.err else None


def _words(rng: random.Random) -> tuple[str, ...]:
    name = rng.choice(list(RUNS))
    script = ROOT / "example" / name / rng.choice(("example_valid.py", "example_multi_batch.py", "example_valid.py"))
    own = OWN[:2] if script.name == "example_valid.py" and rng.random() < 0.5 else ()
    own += OWN[2:4] if rng.random() < 0.3 else ()
    own += OWN[4:] if rng.random() < 0.3 else ()
    model = str(ROOT / "example/classification/digits/digits_dyn.onnx")
    return rng.choice(
        (
            (str(script), "--target", rng.choice(("onnx", "sdaa", "cpu")), "--batch_size", "4", *own),
            (str(script), "--target", "onnx", "--batch_size", "4", *own),
            ("-m", "tecoexec", "--onnx", model, "--input_shapes", "64*3*32*32", "--iterations", "200"),
            ("-m", "toolkit.cli", "compare", model),
            ("-m", "toolkit.cli", "profile", model),
            ("-m", "toolkit.cli", "list"),
            ("-m", "toolkit.cli", "check", "digits"),
            ("-m", "engine.sdaa.smi", "--watch"),
        )
    )
