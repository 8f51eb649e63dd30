"""Simulated times of the card over batch sizes, with tecoexec."""

from __future__ import annotations

from typing import Any

from engine import EngineError
from engine.signature import batch_axes
from tecoexec.config import Sweep, scaled
from tecoexec.sweep import make_folder, sweep, write_results
from toolkit.adapt.running import dims_of, flags_of, model_file
from toolkit.adapt.stage import Stage
from toolkit.adapt.stages.passes import used_pass
from toolkit.adapt.work import NOTED, Outcome, Work

BATCHES = (1, 4, 16, 64, 256)
"""Samples per call to the whole card."""

FOLDER = "sweep"


class SweepBatches(Stage):
    """Run tecoexec's sweep; only times are computed."""

    name, title, optional = "tecoexec", "tecoexec", True
    needs = ("take_in", "export", "task", "data", "sdaa", "passes")

    def run(self, work: Work) -> Outcome:
        """Return a row per batch. Raises EngineError if no batch can be run."""
        file = model_file(work)
        shapes, places = _shapes(work)
        case = Sweep(
            name=work.request.name,
            model=file.stem,
            onnx=file,
            shapes=shapes,
            batch_index=places,
            batches=scaled(BATCHES),
            dtype="float16",
            pass_path=used_pass(work),
            input_dtypes=(),
            iterations=20,
            warm_up=2,
            run_sync=False,
            published={},
            references={},
            desc="written by teco adapt",
        )
        folder = make_folder(work.folder / FOLDER)
        points, skipped = sweep([case], "sdaa", folder)
        if not points:
            raise EngineError(skipped[0] if skipped else "no batch was run")
        write_results(points, folder, skipped)
        rows: list[dict[str, Any]] = [
            {"batch": one.batch, "latency_ms": one.latency_ms, "throughput": one.throughput} for one in points
        ]
        best = max(points, key=lambda one: one.throughput)
        first = f"{rows[0]['latency_ms']:.3g} ms at batch {rows[0]['batch']}"
        line = f"simulated: {best.throughput:.0f} samples/s at batch {best.batch}, {first}"
        status = NOTED if skipped else "done"
        return Outcome(line, {"rows": rows, "skipped": skipped}, [folder / "sweep.json"], skipped, status)


def _shapes(work: Work) -> tuple[tuple[tuple[int, ...], ...], tuple[int | None, ...]]:
    """Return the shapes of the inputs for one sample, and per input the axis of the batch, or ``None``."""
    found = work.facts("export")
    sizes = {**found["sizes"], **{name: max(values) for name, values in dims_of(flags_of(work)).items()}}
    declared = [one["shape"] for one in found["inputs"]]
    shapes, places = [], []
    for shape, axis in zip(declared, batch_axes(declared), strict=True):
        shapes.append(tuple(size if isinstance(size, int) else sizes.get(size, 1) for size in shape))
        fixed = axis is None or (isinstance(shape[axis], int) and shape[axis] != 1)
        places.append(None if fixed else axis)
    return tuple(shapes), tuple(places)
