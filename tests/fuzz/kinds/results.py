"""Results of runs that are killed, lose their output or share a folder: a JSON result and its records are one state."""

from __future__ import annotations

import json
import random
from pathlib import Path

from tests.fuzz.case import Case, Outcome
from tests.fuzz.kinds.journals import EXAMPLE, RUNS

WARM = ("tecoinfer_modelzoo.files",)

NAMES = (
    "a",
    "a.json",
    "lr0.1",
    "lr0.2",
    ".json",
    "a b.json",
    "é.json",
    "deep/er/a.json",
    "kept/journal.jsonl",
    "a.csv",
)
"""Names of results; some pairs differ only in the ending."""

ENDS = ("none", "none", "kill", "kill", "term", "closed", "full", "reader", "limit")
"""How the second run ends: undisturbed; killed before a call that changes a file; by SIGTERM; with its standard output
closed, full, or read by a process that leaves after one line; or with a limit on the size of its files."""

SCRIPT = """\
import json, os, resource, runpy, signal, sys
from pathlib import Path
sys.path.insert(0, ROOT)
plan = json.loads(Path("plan.json").read_text())
os.umask(plan["umask"])


def script(run, end="none", count=0):
    words = [run["script"], "--target", "onnx", *run["flags"], "--json", run["name"]]
    os.environ["TECO_INFER_PIPELINES_MAX_STEPS"] = str(run["steps"])
    if end == "kill":
        left = [count]

        def hook(event, args):
            changing = event in ("os.rename", "os.remove", "os.chmod", "os.truncate")
            if changing or (event == "open" and isinstance(args[2], int) and args[2] & (os.O_CREAT | os.O_TRUNC)):
                left[0] -= 1
                if left[0] < 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
    elif end == "limit":
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (count, count))
    sys.argv = words
    sys.path.insert(0, str(Path(words[0]).parent))
    runpy.run_path(words[0], run_name="__main__")


def forked(run, **how):
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        out = {"closed": None, "full": "/dev/full"}.get(how.get("end"), "out.txt")
        if how.get("end") == "reader":
            os.dup2(writing, 1)
        elif out is None:
            os.close(1)
        else:
            os.dup2(os.open(out, os.O_WRONLY | os.O_CREAT, 0o644), 1)
        os.close(reading), os.close(writing)
        # A new interpreter: its exit is that of a script started from a shell.
        os.execv(sys.executable, [sys.executable, __file__, json.dumps([run, how])])
    os.close(writing)
    if how.get("end") == "reader":
        os.read(reading, 20)
    os.close(reading)
    if how.get("end") == "term":
        signal.setitimer(signal.ITIMER_REAL, how["count"] / 50)
        signal.signal(signal.SIGALRM, lambda *_: os.kill(child, signal.SIGTERM))
    status = os.waitpid(child, 0)[1]
    signal.setitimer(signal.ITIMER_REAL, 0)
    return os.waitstatus_to_exitcode(status)


def state(run):
    path = Path(run["name"])
    if not path.is_file() or b'"journal"' in path.read_bytes()[:30]:
        return None  # none, or a journal of --resume
    try:
        result = json.loads(path.read_text())
    except ValueError:
        return "damaged"
    from utils.pipeline.resume.records import find_records
    records = find_records(path) if "records" in result else None
    mode = {p.stat().st_mode & 0o777 for p in (path, records) if p is not None}
    return [result.get("metric"), result.get("samples"), records is not None, sorted(mode)]


if len(sys.argv) > 1:
    run, how = json.loads(sys.argv[1])
    script(run, **how)
else:
    first = forked(plan["runs"][0])
    before = state(plan["runs"][0])
    second = forked(plan["runs"][1], end=plan["end"], count=plan["count"])
    print(json.dumps([first, before, second, state(plan["runs"][0]), state(plan["runs"][1])]))
"""


def make(rng: random.Random, folder: Path, number: int) -> Case:
    """Two runs that write results into one folder; the second one is disturbed."""
    names = [rng.choice(NAMES) for _ in range(2)]
    names[1] = names[0] if rng.random() < 0.4 else names[1]
    runs = [_run(rng, name) for name in names]
    end = rng.choice(ENDS)
    count = rng.choice((0, 100, 2000)) if end == "limit" else rng.randint(0, 60)
    plan = {"runs": runs, "end": end, "count": count, "umask": rng.choice((0o22, 0o77, 0o27))}
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / "plan.json").write_text(json.dumps(plan))
    (folder / "launch.py").write_text(SCRIPT.replace("ROOT", repr(str(EXAMPLE.parent)), 1))
    what = f"{names[0]}, then {names[1]}: {end} {count}, umask {plan['umask']:03o}"
    return Case(
        ("launch.py",), what, lambda outcome: _judge(outcome, plan), env={"TECO_CACHE_DIR": str(folder / "cache")}
    )


def _run(rng: random.Random, name: str) -> dict[str, object]:
    example = rng.choice(list(RUNS))
    flags = [*RUNS[example], *(("--resume", "kept") if rng.random() < 0.2 else ())]
    script = str(EXAMPLE / example / "example_valid.py")
    return {"script": script, "flags": flags, "name": name, "steps": rng.randint(1, 3)}


def _judge(outcome: Outcome, plan: dict[str, object]) -> str | None:
    """Check exit codes against files, modes against the umask, and results against their records."""
    lines = [line for line in outcome.out.splitlines() if line.startswith("[")]
    if outcome.code != 0 or not lines:
        return f"a result does not belong to its records, or the state cannot be read: {outcome.err[-300:]}"
    _, before, second, kept, after = json.loads(lines[-1])
    names = [run["name"] for run in plan["runs"]]  # type: ignore[attr-defined]
    umask = plan["umask"]
    if "damaged" in (before, kept, after):
        return "a JSON result is damaged"
    if second in (0, 1) and after is None:
        return f"exit code {second} without a JSON result"
    if names[0] != names[1] and kept != before:
        return "a second run changed the result of another name"
    for found in (kept, after):
        if found is not None and any(mode & umask for mode in found[3]):
            return f"modes {found[3]} with umask {umask}"
    disturbed = plan["end"] in ("closed", "full", "limit")
    return f"exit code {second} though its output was lost" if disturbed and second == 0 and after is None else None
