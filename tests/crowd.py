"""A script that evaluates the digits with several processes and can be told to go wrong; the tests start it."""

from __future__ import annotations

import argparse
import atexit
import json
import os
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from engine import Array, ConfigError, EngineSpec, TecoInferError, open_engine
from utils.datasets import TableDataset, load_dataset, rank_and_size, shard
from utils.metrics import TopK
from utils.pipeline import evaluate
from utils.pipeline.launch.ray_launcher import launch
from utils.pipeline.launch.serialization import load_script
from utils.pipeline.report.report import Report
from utils.preprocess.pytorch.classification import preprocess

DIGITS = Path(__file__).resolve().parents[1] / "example" / "classification" / "digits"


class Kept(TopK):
    """Keeps whether each sample was right: a metric that a script defines, which must travel too."""

    def __init__(self) -> None:
        super().__init__(1)
        self.flags: list[bool] = []

    def update(self, predictions: Any, targets: Any, contexts: Any = None) -> Any:
        flags = super().update(predictions, targets)
        self.flags += flags.values.tolist()
        return flags


def signal_at(opt: argparse.Namespace, place: str) -> None:
    """Send this process a signal, leave it at once (0) or wait in it (-1), where that was asked for at this place."""
    if opt.at == place and rank_and_size()[0] == opt.rank:
        (opt.folder / f"at-{place}").touch()
        if not opt.signal:
            os._exit(0)
        if opt.signal < 0:
            time.sleep(600)
        os.kill(os.getpid(), opt.signal)


def misbehave(opt: argparse.Namespace, step: list[int], outputs: Any) -> Array:
    """Postprocess, and in the third step go wrong where that was asked for."""
    rank = rank_and_size()[0]
    step[0] += 1
    if step[0] == 3 and rank == opt.rank:
        if opt.wrong == "error":
            raise ConfigError("rank 1 met what the zoo refuses")
        if opt.wrong == "bug":
            raise ZeroDivisionError("a bug in the script")
        if opt.wrong == "always" or (opt.wrong == "once" and not opt.mark.exists()):
            opt.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
    (opt.folder / f"rank-{rank}-is-at-work").touch()
    time.sleep(opt.slow)
    return np.asarray(outputs)


def evaluate_part(opt: argparse.Namespace) -> Report:
    rank, size = rank_and_size()
    dataset = TableDataset(list(load_dataset(DIGITS / "data" / "val"))[: opt.samples])
    metric = Kept()
    engine = open_engine("onnx", EngineSpec(DIGITS / "digits_dyn.onnx", input_size=((1, 3, 32, 32),)))
    prepare = partial(preprocess, resize_shape=32, crop_shape=32)
    post = partial(misbehave, opt, [0])
    with engine:
        report = evaluate(engine, shard(dataset, rank, size).batches(8), prepare, post, metric)
    (opt.folder / f"records-{rank}.json").write_text(json.dumps(metric.flags))
    cores = len(os.sched_getaffinity(0))
    (opt.folder / f"process-{rank}.json").write_text(json.dumps({"pid": os.getpid(), "cores": cores}))
    return report


def in_script(script: Path, name: str, opt: argparse.Namespace) -> Report:
    report: Report = getattr(load_script(script), name)(opt)
    return report


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def distribute(opt: argparse.Namespace) -> Report | None:
    if opt.launcher == "ray":
        import crowd  # not __main__: the workers import it

        arguments = (Path(__file__).resolve(), "evaluate_part", opt)
        return launch(crowd.in_script, arguments, opt.num_workers, say, samples=opt.samples)
    from utils.pipeline.launch.mpi import gather

    def work() -> Report:
        signal_at(opt, "work")
        report = evaluate_part(opt)
        signal_at(opt, "worked")
        return report

    report = gather(work, say, resume=opt.resume)
    signal_at(opt, "gathered")
    atexit.register(signal_at, opt, "end")  # before MPI's own end, as that was registered earlier
    return report


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--launcher")
    parser.add_argument("--num_workers", type=int)
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--slow", type=float, default=0.0)
    parser.add_argument("--wrong", choices=("error", "bug", "once", "always"))
    parser.add_argument("--rank", type=int, default=1)
    parser.add_argument("--resume", type=Path)
    parser.add_argument("--at", choices=("start", "work", "worked", "gathered", "end"))
    parser.add_argument("--signal", type=int, default=signal.SIGSTOP)
    opt = parser.parse_args()
    opt.mark = opt.folder / "died"
    signal_at(opt, "start")
    try:
        report = distribute(opt)
    except TecoInferError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    except KeyboardInterrupt:
        return 130
    if report is not None:
        result = {"metric": report.metric, "samples": report.samples, "steps": report.steps}
        result |= {"processes": report.processes, "recomputed": report.recomputed}
        (opt.folder / "result.json").write_text(json.dumps(result))
        say("\n".join(report.closing_lines()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
