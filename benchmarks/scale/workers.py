"""The scaling model compared with Ray: workers of one core each, on the paced card and on the CPU engine.

The cluster has as many nodes as the largest number of workers, of one core each: a node's processes are bound to it. A
paced card (one SPA, slowed down to a given time per batch) waits on the wall clock and needs little CPU, so more
workers than cores run side by side as on more machines. With target ``onnx`` the workers compute: there, more workers
than cores share them, and other programs that use the machine slow them down.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import uuid
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

from parts.bench import DIGITS, ROOT
from parts.peers import Setup
from scaling import Costs, Site, measured_costs, predict

from engine import EngineSpec, open_engine, usable_cores
from engine.sdaa import FAULTS_VARIABLE
from scale.long_list import make_list

BATCH = 8
"""Images of a call."""
CURVE = (1, 2, 4, 8, 16, 32, 64)
"""Numbers of machines with a core and a card each, for the prediction."""


@contextmanager
def cluster(nodes: int, environment: Mapping[str, str]) -> Iterator[str]:
    """Start a cluster of nodes with a core each, and yield its address; every node's processes run on one core."""
    allowed = sorted(os.sched_getaffinity(0))
    with mock.patch.dict(os.environ, environment, clear=True):
        from ray.cluster_utils import Cluster  # Ray reads the environment when it is imported

        found = Cluster()
        try:
            for node in range(nodes):
                os.sched_setaffinity(0, [allowed[node % len(allowed)]])  # a child keeps it
                first = {} if node else {"include_dashboard": False}
                found.add_node(num_cpus=1, object_store_memory=10**8, **first)
            os.sched_setaffinity(0, allowed)
            yield str(found.address)
        finally:
            os.sched_setaffinity(0, allowed)
            found.shutdown()


def slowed(seconds: float) -> dict[str, str]:
    """Return the environment of the paced card of one SPA, slowed down to ``seconds`` per batch."""
    own = {"MAX_ENGINE_NUMS": "1", "TECO_SIM_CARDS": str(max(CURVE[:3]))}
    with mock.patch.dict(os.environ, own), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spec = EngineSpec(DIGITS / "digits_dyn.onnx", batch_size=BATCH, input_size=((BATCH, 3, 32, 32),))
        with open_engine("sdaa", spec) as engine:
            engine(_zeros())
            latency = float(engine.device_report()["simulated_latency"])
    return own | {FAULTS_VARIABLE: f"slow:spa=0,step=0,factor={seconds / latency}", "TECO_SIM_PACED": "1"}


def _zeros() -> Any:
    import numpy as np

    return np.zeros((BATCH, 3, 32, 32), np.float32)


def evaluated(file: Path, target: str, workers: int, environment: Mapping[str, str]) -> tuple[float, dict[str, Any]]:
    """Run the valid script with Ray; return its wall seconds, and its JSON."""
    result = file.with_name("result.json")
    command = [sys.executable, str(DIGITS / "example_valid.py"), "--target", target, "--data_path", str(file)]
    command += ["--batch_size", str(BATCH), "--json", str(result), "--launcher", "ray", "--num_workers", str(workers)]
    began = time.perf_counter()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    wall = time.perf_counter() - began
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}: {done.stderr}")
    return wall, json.loads(result.read_text(encoding="utf-8"))


def measured(
    images: int, counts: Sequence[int], targets: Sequence[str], batch_seconds: float, quick: bool
) -> dict[str, Any]:
    """Return the measured and predicted figures by target and number of workers, and the curve to 64 machines."""
    setup = Setup("digits", DIGITS / "digits_dyn.onnx", DIGITS / "data/val", BATCH, resize=32, crop=32)
    costs = measured_costs(setup, DIGITS / "example_valid.py", quick or "onnx" not in targets)
    card = slowed(batch_seconds)
    rows, starts, curve = [], {}, []
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as text:
        folder = Path(text)
        file, one = make_list(folder, images), folder / "one.txt"
        one.write_text(file.read_text(encoding="utf-8").partition("\n")[0], encoding="utf-8")
        plain = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        plain |= {"PYTHONPATH": str(ROOT), "HOME": text, "RAY_TMPDIR": text, "RAY_USAGE_STATS_ENABLED": "0"}
        plain |= {"RAY_raylet_start_wait_time_s": "300", "RAY_health_check_timeout_ms": "300000"}  # if busy
        plain |= {"RAY_gcs_server_request_timeout_seconds": "300", "RAY_gcs_rpc_server_connect_timeout_s": "120"}
        plain |= {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": uuid.uuid4().hex,
            "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        }
        with cluster(max(counts), plain) as address:
            for workers in counts:
                for target in targets:
                    settings = plain | {"RAY_ADDRESS": address} | (card if target == "sdaa" else {})
                    if target not in starts:
                        starts[target], _ = evaluated(one, target, 1, settings)
                    wall, report = evaluated(file, target, workers, settings)
                    site = Site(workers, 1, 1) if target == "sdaa" else Site(1, workers, usable_cores())
                    predicted = predict(
                        images, BATCH, _costs(costs, target, batch_seconds / BATCH, starts[target]), site
                    )
                    rows.append(
                        {
                            "target": target,
                            "workers": workers,
                            "measured_s": wall,
                            "predicted_s": predicted.seconds,
                            "running": report["avg_sps"],
                            "limit": predicted.rate,
                            "metric": report["metric"],
                            "late_calls": report.get("device", {}).get("paced", {}).get("late_calls"),
                        }
                    )
        if "sdaa" in targets:
            kept = _costs(costs, "sdaa", batch_seconds / BATCH, starts["sdaa"])
            curve = [{"machines": n} | _figures(predict(images, BATCH, kept, Site(n, 1, 1))) for n in CURVE]
    return {"images": images, "starts_s": starts, "rows": rows, "curve": curve}


def _costs(costs: Costs, target: str, device: float, start: float) -> Costs:
    """Return the costs on a target.

    ``device``: seconds per image of the card; ``start``: of the command for one image.
    """
    if target == "sdaa":
        return replace(costs, inference=0.0, device=device, start=start, start_cpu=0.0, spread=0.0)
    return replace(costs, start=start, start_cpu=start)


def _figures(found: Any) -> dict[str, float]:
    return {"rate": found.rate, "seconds": found.seconds, "overall": found.overall}


def show(found: Mapping[str, Any]) -> None:
    """Print the tables."""
    starts = ", ".join(f"{target} {seconds:.1f} s" for target, seconds in found["starts_s"].items())
    print(f"Ray, {found['images']} images, nodes of one core on {usable_cores()} cores; one image: {starts}")
    print(f"  {'target':12} {'workers':>7} {'images/s':>9} {'limit':>7} {'seconds':>8} {'predicted':>9}  difference")
    for row in found["rows"]:
        name = "sdaa, paced" if row["target"] == "sdaa" else row["target"]
        print(f"  {name:12} {row['workers']:7} {row['running']:9.1f} {row['limit']:7.0f}", end="")
        print(f" {row['measured_s']:8.1f} {row['predicted_s']:9.1f}  {row['measured_s'] / row['predicted_s'] - 1:+.0%}")
    metrics = {row["metric"] for row in found["rows"] if row["target"] == "sdaa"}
    if len(metrics) > 1:
        raise SystemExit(f"the metric depends on the number of workers: {sorted(metrics)}")
    for row in found["curve"]:
        efficiency = found["curve"][0]["seconds"] / row["seconds"] / row["machines"]
        print(f"  predicted, {row['machines']:2} machines: {row['rate']:7.0f} images/s while running,", end="")
        print(f" {row['seconds']:7.1f} s, efficiency {efficiency:.0%}")
