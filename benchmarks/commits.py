"""This checkout compared with another commit of it, in interleaved pairs: throughput, cold start and the overhead of a
call; with ``--training`` the CPU time of compiled training steps on the device instead.

The ratio is the other commit's time over ours: 1 is as fast, above 1 faster. Each pair runs both, in alternating order;
the lower bound is of a 95 % bootstrap interval of the median ratio.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
from parts.bench import ROOT, arguments, finish, median, take_turns

LEAST = 0.95
"""Lower bound of the ratio that a change must keep."""

MEASUREMENTS = ("throughput onnx", "throughput sdaa", "cold start onnx", "cold start sdaa", "call")

LEAST_TRAINING = 1 / 1.15
"""Likewise of compiled training steps."""

COPIES = 40
"""Repetitions of the 360 digits in the throughput data, so that a run takes seconds."""

RESAMPLES = 10_000

DIGITS = Path("example/classification/digits")

CALLS = """
import sys, tempfile, time
sys.path.insert(0, sys.argv[1])
from pathlib import Path
import numpy as np, onnx
from engine import EngineSpec, open_engine
shape = (1, 4)
tensors = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name in ("x", "y")]
graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "tiny", tensors[:1], tensors[1:])
model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
with tempfile.TemporaryDirectory() as folder:
    onnx.save(model, folder + "/tiny.onnx")
    with open_engine("onnx", EngineSpec(ckpt=Path(folder) / "tiny.onnx")) as engine:
        x, best = np.zeros(shape, np.float32), []
        for _ in range(15):
            start = time.perf_counter()
            for _ in range(2000):
                engine(x)
            best.append((time.perf_counter() - start) / 2000)
print(sorted(best)[len(best) // 2])
"""


@contextmanager
def checkout(commit: str) -> Iterator[Path]:
    """Yield a folder with the files of a commit."""
    with tempfile.TemporaryDirectory(prefix="commit-") as folder:
        add = ["git", "-C", str(ROOT), "worktree", "add", "--detach", "--quiet", f"{folder}/tree", commit]
        subprocess.run(add, check=True)
        try:
            yield Path(folder) / "tree"
        finally:
            remove = ["git", "-C", str(ROOT), "worktree", "remove", "--force", f"{folder}/tree"]
            subprocess.run(remove, check=True)


def run(tree: Path, words: list[str]) -> str:
    """Run Python with the packages of a checkout and return what it printed; exit with the last line of an error."""
    env = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    env["PYTHONPATH"] = str(tree)
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, env=env, cwd=tree)
    if done.returncode:
        sys.exit(f"{' '.join(words)}: {last_line(done.stderr)}")
    return done.stdout


def last_line(printed: str) -> str:
    """Return the last line of a failed process, which names the error."""
    return (printed.strip().splitlines() or ["it ended without a message"])[-1]


def listing(folder: Path, copies: int) -> Path:
    """Write a label file that lists every image several times."""
    source = ROOT / DIGITS / "data" / "val"
    (folder / "val").symlink_to(source)
    lines = [f"val/{path.relative_to(source)} {path.parent.name}\n" for path in sorted(source.rglob("*.png"))]
    file = folder / "images.txt"
    file.write_text("".join(lines * copies))
    return file


def throughput(tree: Path, target: str, listed: Path, result: Path) -> float:
    """Return the seconds per image of an evaluation, without its start."""
    words = [str(tree / DIGITS / "example_valid.py"), "--target", target, "--data_path", str(listed)]
    run(tree, [*words, "--json", str(result)])
    return 1 / float(json.loads(result.read_text())["avg_sps"])


def cold_start(tree: Path, target: str) -> float:
    """Return the wall seconds of one process that reads one image."""
    start = time.perf_counter()
    run(tree, [str(tree / DIGITS / "example_single_batch.py"), "--target", target])
    return time.perf_counter() - start


def call(tree: Path) -> float:
    """Return the seconds of a call of a tiny model."""
    return float(run(tree, ["-c", CALLS, str(tree)]))


@contextmanager
def training_steps(tree: Path, model: str, autocast: str) -> Iterator[Callable[[], float]]:
    """Yield a function that returns the CPU seconds of one compiled training step on the device.

    The step is prepared in a process that waits for calls, so that both commits take turns step by step. The other
    commit may be older than the benchmark of training steps: both run ours.
    """
    script = tree / "benchmarks" / "training_step.py"
    if tree != ROOT:
        shutil.copy(ROOT / "benchmarks" / "training_step.py", script)
    words = [sys.executable, str(script), "--turns", "--models", model]
    words += [] if autocast == "float32" else ["--autocast", autocast]
    env = os.environ | {"PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
    pipe = subprocess.PIPE
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(words, cwd=tree, env=env, stdin=pipe, stdout=pipe, stderr=errors, text=True) as process,
    ):
        given, printed = process.stdin, process.stdout
        assert given
        assert printed
        said = ""
        for said in printed:
            if said == "ready\n":
                break
        else:
            errors.seek(0)
            sys.exit(f"{tree}: {model}: {last_line(errors.read() or said)}")

        def step() -> float:
            given.write("step\n")
            given.flush()
            if not (found := printed.readline()):
                errors.seek(0)
                sys.exit(f"{tree}: {model}: {last_line(errors.read())}")
            return float(found) / 1e3

        yield step
        given.close()


def lower_bound(ratios: list[float]) -> float:
    """Return the lower end of the 95 % bootstrap interval of the median."""
    rng = np.random.default_rng(0)
    drawn = rng.choice(np.array(ratios), (RESAMPLES, len(ratios)))
    return float(np.quantile(np.median(drawn, axis=1), 0.025))


def main() -> int:
    """Run the benchmark."""
    parser = arguments(__doc__)
    parser.add_argument("--commit", default="HEAD~1", help="commit to compare with")
    parser.add_argument("--pairs", type=int, default=20, help="interleaved pairs of each measurement")
    parser.add_argument("--only", nargs="+", default=[], choices=MEASUREMENTS, help="which; default: all")
    parser.add_argument(
        "--training", nargs="+", default=[], metavar="MODEL", help="networks of benchmarks/training_step.py"
    )
    parser.add_argument("--autocast", nargs="+", choices=("float32", "float16", "bfloat16"), default=["float32"])
    args = parser.parse_args()
    if args.only and args.training:
        parser.error("--only and --training: leave out one of them")
    found: dict[str, object] = {"commit": args.commit}
    with checkout(args.commit) as other, tempfile.TemporaryDirectory() as folder:
        listed, result = listing(Path(folder), 1 if args.quick else COPIES), Path(folder) / "result.json"
        measures: list[Callable[[Path], float]] = [
            partial(throughput, target="onnx", listed=listed, result=result),
            partial(throughput, target="sdaa", listed=listed, result=result),
            partial(cold_start, target="onnx"),
            partial(cold_start, target="sdaa"),
            call,
        ]
        by_name = dict(zip(MEASUREMENTS, measures, strict=True))
        pairs = 2 if args.quick else args.pairs
        for name in () if args.training else args.only or MEASUREMENTS:
            sides = [partial(by_name[name], tree) for tree in (ROOT, other)]
            take_turns(sides[0], sides[1], 1)  # files and bytecode into the caches
            found[name] = compared(name, sides[0], sides[1], pairs, LEAST)
        for model, autocast in product(args.training, args.autocast):
            name = f"{model} {autocast}"
            with training_steps(ROOT, model, autocast) as ours, training_steps(other, model, autocast) as theirs:
                found[name] = compared(name, ours, theirs, pairs, LEAST_TRAINING)
    finish("commits", found, args)
    return 0


def compared(
    name: str, ours: Callable[[], float], other: Callable[[], float], pairs: int, least: float
) -> dict[str, object]:
    """Measure both in turns, print a line and return the figures."""
    turns = take_turns(ours, other, pairs)
    ratios = [theirs / mine for mine, theirs in zip(turns.ours, turns.peer, strict=True)]
    bound = lower_bound(ratios)
    verdict = "met" if bound >= least else "MISSED"
    print(
        f"{name:27} ours {median(turns.ours) * 1e3:9.4f} ms, other {median(turns.peer) * 1e3:9.4f} ms, "
        f"ratio {median(ratios):.3f}, lower 95 % bound {bound:.3f} (target {least:.2f}; {verdict})",
        flush=True,
    )
    return {"ours": turns.ours, "other": turns.peer, "ratio": median(ratios), "lower_bound": bound, "least": least}


if __name__ == "__main__":
    sys.exit(main())
