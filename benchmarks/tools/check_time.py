"""Time of `teco check`: wall and CPU seconds of every case, by step.

    python benchmarks/tools/check_time.py                       # the zoo's cases, from nothing
    python benchmarks/tools/check_time.py --networks 26         # a zoo of 26 networks of torchvision, random weights
    python benchmarks/tools/check_time.py --networks 26 --exporter torchscript --forms float16_dyn

Each check runs twice with a separate cache: first an empty one, then without changes. Computing seconds are those of a
step and its children; the rest of the wall time is that of the check itself (structure, copies, hashes, the gate).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from utils.pipeline.report.report import environment, write_json

NETWORKS = [
    "resnet18",
    "mobilenet_v2",
    "densenet121",
    "efficientnet_b0",
    "shufflenet_v2_x1_0",
    "googlenet",
    "mobilenet_v3_small",
    "squeezenet1_1",
    "mnasnet0_5",
    "regnet_y_400mf",
    "resnet34",
    "mobilenet_v3_large",
    "shufflenet_v2_x0_5",
    "resnet50",
    "efficientnet_b1",
    "regnet_x_400mf",
    "mnasnet1_0",
    "squeezenet1_0",
    "resnext50_32x4d",
    "densenet169",
    "regnet_y_800mf",
    "shufflenet_v2_x1_5",
    "efficientnet_b2",
    "resnet101",
    "wide_resnet50_2",
    "mnasnet0_75",
]
"""Networks that take small images, none of whose files is over 150 MB."""

STEPS = ("export", "valid", "single", "multi", "baseline")


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", type=int, default=0, help=f"so many networks (up to {len(NETWORKS)}) as the zoo")
    parser.add_argument("--exporter", default=None, help="of the networks' export (default: the script's)")
    parser.add_argument("--forms", nargs="+", default=["float16_dyn"], help="that the networks' export writes")
    parser.add_argument("--input_size", type=int, default=64, help="of the networks' images")
    parser.add_argument("--jobs", type=int, default=None, help="cases side by side (default: one per core)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the result as JSON")
    args = parser.parse_args(argv)
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="check-time-") as text:
        folder = Path(text)
        words = [] if args.jobs is None else ["--jobs", str(args.jobs)]
        root = ROOT
        if args.networks:
            root = zoo(folder / "zoo", args)
        for what in ("from nothing", "nothing changed"):
            seconds, used, code, cases = check(root, folder, words)
            print(f"\n{what}: {seconds:.1f} s, computing {used:.1f} s, exit code {code}")
            found.append(
                {"what": what, "seconds": seconds, "cpu_seconds": used, "exit_code": code, "cases": len(cases)}
            )
            if what == "from nothing":
                table(cases, used)
    if args.json is not None:
        write_json({"schema_version": 1, "benchmark": "check_time", "runs": found, **environment()}, args.json)
    return 0


def zoo(root: Path, args: argparse.Namespace) -> Path:
    """Create a zoo with one case and folder per network from the folder of the ResNets; return its path."""
    root.mkdir()
    for entry in ROOT.iterdir():
        if entry.name not in ("example", "model_config", ".git", "contrib"):
            (root / entry.name).symlink_to(entry)
    shutil.copytree(ROOT / "model_config", root / "model_config", ignore=shutil.ignore_patterns("__pycache__"))
    base = yaml.safe_load((ROOT / "model_config/model.yaml").read_text(encoding="utf-8"))
    [resnet] = [case for case in base if case["case_name"] == "resnet18_random"]
    cases = []
    for name in NETWORKS[: args.networks]:
        folder = root / "example/classification" / name
        shutil.copytree(
            ROOT / "example/classification/resnet", folder, ignore=shutil.ignore_patterns("*.onnx", "perf*")
        )
        script = folder / "export_onnx.py"
        text = script.read_text(encoding="utf-8").replace("choices=BEST", f"choices=[{name!r}]")
        script.write_text(text, encoding="utf-8")
        cases.append(case_of(resnet, name, args))
    (root / "model_config/model.yaml").write_text(yaml.safe_dump(cases, sort_keys=False), encoding="utf-8")
    return root


def case_of(resnet: dict[str, Any], name: str, args: argparse.Namespace) -> dict[str, Any]:
    """Return the ResNet's case for another network."""
    case: dict[str, Any] = json.loads(json.dumps(resnet))
    case["case_name"], case["run_dir"] = f"{name}_random", f"example/classification/{name}"
    params = {"arch": name, "weights": "random", "input_size": args.input_size, "forms": args.forms}
    case["run_export"]["params"] = params | ({"exporter": args.exporter} if args.exporter else {})
    for step in ("run_example_valid", "run_example_single", "run_example_multi"):
        case[step]["params"]["ckpt"] = f"{name}_{args.forms[-1]}.onnx"
        others = case[step]["params"].setdefault("others", {})
        others.pop("pass_path", None)
        others["input_size"] = args.input_size
    return case


def check(root: Path, folder: Path, words: Sequence[str]) -> tuple[float, float, int, list[dict[str, Any]]]:
    """Run the check; return its wall seconds, its computing seconds, its exit code and its cases."""
    result, before, start = folder / "result.json", os.times(), time.perf_counter()
    code = "import sys; from pathlib import Path; from model_config.check import command; "
    code += f"sys.exit(command(root=Path({str(root)!r})))"
    surroundings = os.environ | {"TECO_CACHE_DIR": str(folder / "cache"), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code, "--json", str(result), *words]
    ran = subprocess.run(command, cwd=root, env=surroundings, check=False, stdout=subprocess.DEVNULL)
    after = os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    seconds = time.perf_counter() - start
    return seconds, used, ran.returncode, json.loads(result.read_text(encoding="utf-8"))["cases"]


def table(cases: Sequence[dict[str, Any]], used: float) -> None:
    """Print computing seconds of every case by step, and the sums."""
    print(f"{'computing seconds':28}" + "".join(f"{name:>10}" for name in STEPS) + f"{'wall':>10}  verdict")
    sums: dict[str, float] = defaultdict(float)
    for case in cases:
        found = {step["step"]: step.get("cpu_seconds") or 0.0 for step in case["steps"]}
        for name, seconds in found.items():
            sums[name] += seconds
        row = "".join(f"{found.get(name, 0.0):10.1f}" for name in STEPS)
        print(f"{case['case']:28}{row}{case['seconds']:10.1f}  {case['verdict']}")
    print(f"{'sum':28}" + "".join(f"{sums[name]:10.1f}" for name in STEPS))
    print(f"the check itself, and what its steps share: {used - sum(sums.values()):.1f} s")


if __name__ == "__main__":
    sys.exit(main())
