"""Export every classification network of torchvision with random weights at a small input, and report each result.

    python benchmarks/classifiers.py                     all of them, smallest first
    python benchmarks/classifiers.py vit_b_16 swin_t     these
    python benchmarks/classifiers.py --families          the smallest of each family

Each row is stored when it is finished (``--json FILE``, default benchmarks/results/classifiers.json), and rows that
have passed are not run again. Each network is exported in a separate process. Columns: largest relative error of each
form compared with PyTorch, seconds, and the error message of a failure. Exit code 1: one of them failed.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

SCRIPT = HERE.parent / "example/classification/imagenet/export_onnx.py"
SMALL = {"alexnet": 64, "inception_v3": 96, "maxvit": 224, "vit_l_32": 64, "vit_b_32": 64, "vit_h_14": 56}
SCHEMA_VERSION = 1


def size_of(arch: str) -> int:
    """Return a small image size that the network accepts."""
    return next((size for name, size in SMALL.items() if arch.startswith(name)), 64)


def family(arch: str) -> str:
    """Return the family name."""
    if arch.startswith("vgg"):
        return "vgg_bn" if arch.endswith("_bn") else "vgg"
    return re.match(r"[a-z]+(_v\d|_[xy]_|_v2)?", arch)[0].rstrip("_")


def by_parameters() -> list[str]:
    """Return every network, the smallest first."""
    from utils.export.networks.torchvision_models import import_torchvision

    models = import_torchvision().models
    sized = {name: next(iter(models.get_model_weights(name))) for name in models.list_models(module=models)}
    return sorted(sized, key=lambda name: sized[name].meta["num_params"])


def exported(arch: str, timeout: float) -> dict[str, Any]:
    """Export one network and return its row."""
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(SCRIPT), "--arch", arch, "--weights", "random", "--out", folder]
        command += ["--input_size", str(size_of(arch)), "--forms", "dyn", "float16_dyn"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
        except subprocess.TimeoutExpired:
            return {"arch": arch, "passed": False, "reason": f"took more than {timeout:g} s"}
    errors = re.findall(r"(float16_dyn|dyn)\.onnx: largest relative error (\S+)", done.stdout)
    row = {"arch": arch, "size": size_of(arch), "passed": done.returncode == 0, "seconds": time.perf_counter() - begun}
    row |= {form: float(error) for form, error in errors}
    lines = done.stderr.strip().splitlines()
    return row if done.returncode == 0 else row | {"code": done.returncode, "reason": lines[-1] if lines else ""}


def main() -> int:
    """Export the requested networks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archs", nargs="*", metavar="ARCH")
    parser.add_argument("--families", action="store_true", help="the smallest of each family")
    parser.add_argument("--json", type=Path, default=HERE / "results/classifiers.json", metavar="FILE")
    parser.add_argument("--timeout", type=float, default=900, metavar="S", help="of one export")
    args = parser.parse_args()
    archs = args.archs or by_parameters()
    if args.families:
        archs = list({family(arch): arch for arch in reversed(archs)}.values())[::-1]
    rows = {row["arch"]: row for row in json.loads(args.json.read_text())["rows"]} if args.json.is_file() else {}
    args.json.parent.mkdir(parents=True, exist_ok=True)
    for arch in archs:
        if not rows.get(arch, {}).get("passed"):
            rows[arch] = exported(arch, args.timeout)
            args.json.write_text(json.dumps({"schema_version": SCHEMA_VERSION, "rows": list(rows.values())}, indent=1))
        print(json.dumps(rows[arch]), flush=True)
    return 0 if all(rows[arch]["passed"] for arch in archs) else 1


if __name__ == "__main__":
    sys.exit(main())
