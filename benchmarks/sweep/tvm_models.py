"""Every committed model and every architecture of the sweep on target tvm, compared with ONNX Runtime in float32.

For each model: the seconds of lowering and compiling, and the largest difference of an output, max|a - b| / max|b|; or
the operator for which TVM refuses it. Architectures have random weights and are exported by torch's dynamo exporter,
else by the other one.
Each runs in a process that is replaced if it dies. The exit code is 1 if a model differs by more than 1e-4, or a
process died.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from parts.bench import ROOT

from sweep.judge import FLOAT32_LIMIT
from sweep.runner import Worker
from utils.pipeline.report.report import write_json

PAGE = ROOT / "docs/reference/tvm_models.md"
BEGIN, END = "<!-- the table: begin -->", "<!-- the table: end -->"
SCHEMA_VERSION = 1
COMMAND = (sys.executable, "-m", "parts.tvm_worker")
LONGEST = 300.0  # seconds that one model may take
NUMBER = re.compile(r"\d+\.\d+(e[+-]\d+)?")

Outcome = Mapping[str, Any]


def main(argv: Sequence[str] | None = None) -> int:
    """Read the command line and run; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="run these models only")
    parser.add_argument("--committed", action="store_true", help="run the committed models only")
    parser.add_argument("--family", nargs="+", default=[], metavar="FAMILY", help="of the sweep, these families only")
    parser.add_argument("--again", action="store_true", help="also run models that are in the file of results")
    parser.add_argument(
        "--write",
        action="store_true",
        help=f"write the table into {PAGE.relative_to(ROOT)}, whose rows of models without a result stay",
    )
    parser.add_argument("--json", type=Path, default=ROOT / "benchmarks/results/tvm_models.json", metavar="FILE",
                        help="where results are kept")  # fmt: skip
    args = parser.parse_args(argv)
    if not find_spec("tvm"):
        print('tvm is not installed; pip install -c constraints.txt -e ".[tvm]"', file=sys.stderr)
        return 2
    names = args.only or [*committed(), *([] if args.committed else architectures(args.family))]
    results = _kept(args.json)
    with tempfile.TemporaryDirectory(prefix="tvm-models-") as folder:
        _run([name for name in names if args.again or name not in results], results, args.json, Path(folder))
    if args.write:
        before = PAGE.read_text(encoding="utf-8")
        head, rest = before.split(BEGIN)
        shown = in_order({**listed(before), **results})
        PAGE.write_text(f"{head}{BEGIN}\n{table(shown)}\n{END}{rest.split(END)[1]}", encoding="utf-8")
    return int(any(_status(results[name]) == "differs" for name in names))


def committed() -> list[str]:
    """Return the paths of the committed float32 models with dynamic sizes, and of exported ones that are there."""
    found = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("example/*/*/*_dyn.onnx"))
    return [name for name in found if "float16" not in name]


def architectures(families: Sequence[str] = ()) -> list[str]:
    """Return the names of the sweep's architectures, of some families; none without the extra ``torch``."""
    if not find_spec("torch"):
        return []
    from sweep.families import all_rows

    return [name for name, (family, _) in all_rows().items() if not families or family in families]


def _kept(path: Path) -> dict[str, Outcome]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    same = (found.get("schema_version"), found.get("tvm")) == (SCHEMA_VERSION, version("apache-tvm"))
    return dict(found["models"]) if same else {}


def listed(page: str) -> dict[str, Outcome]:
    """Return the outcomes in the table of a page."""
    found: dict[str, Outcome] = {}
    for line in page.split(BEGIN)[1].split(END)[0].splitlines():
        name, seconds, error, reason = ([cell.strip() for cell in line.split("|")[1:-1]] + [""] * 4)[:4]
        if NUMBER.fullmatch(seconds) and NUMBER.fullmatch(error):
            found[name] = {"error": float(error), "compile_seconds": float(seconds), "reason": reason}
        elif reason and not seconds:
            died = {} if reason.startswith("TVM") else {"verdict": {"reason": reason}}
            found[name] = {"error": None, "compile_seconds": None, "reason": reason, **died}
    return found


def in_order(results: Mapping[str, Outcome]) -> dict[str, Outcome]:
    """Return results with the committed models first, by name."""
    files = sorted(name for name in results if name.endswith(".onnx"))
    return {name: results[name] for name in (*files, *(name for name in results if not name.endswith(".onnx")))}


def _run(names: Sequence[str], results: dict[str, Outcome], path: Path, folder: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with Worker(folder / "worker.log", folder, LONGEST, COMMAND) as worker:
        for name in names:
            [outcome] = worker.run(name)
            results[name] = outcome
            print(f"{name}: {_cells(outcome)}", flush=True)
            write_json({"schema_version": SCHEMA_VERSION, "tvm": version("apache-tvm"), "models": results}, path)


def _status(outcome: Outcome) -> str:
    """Return ``equal``, ``refused`` or ``differs``, which includes a process that died."""
    if outcome.get("verdict"):
        return "differs"
    error = outcome["error"]
    return "refused" if error is None else "differs" if error > FLOAT32_LIMIT else "equal"


def _cells(outcome: Outcome) -> str:
    reason = outcome.get("reason") or (outcome.get("verdict") or {}).get("reason", "")
    if _status(outcome) == "refused" or outcome.get("verdict"):
        return f" | | {reason}"
    return f"{outcome['compile_seconds']:.1f} | {outcome['error']:.1e} | {reason}"


def table(results: Mapping[str, Outcome]) -> str:
    """Return a sentence of counts, and the table, as Markdown."""
    statuses = [_status(outcome) for outcome in results.values()]
    lines = [
        f"{len(statuses)} models: {statuses.count('equal')} are equal, {statuses.count('refused')} are refused, "
        f"{statuses.count('differs')} differ. "
        f"apache-tvm {version('apache-tvm')}, onnxruntime {version('onnxruntime')}.",
        "",
        "| model | compile s | largest difference | reason |",
        "|---|---:|---:|---|",
    ]
    return "\n".join([*lines, *(f"| {name} | {_cells(outcome)} |" for name, outcome in results.items())])


if __name__ == "__main__":
    sys.exit(main())
