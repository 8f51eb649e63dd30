"""Rate of correctly located operators in training: faults injected into four small trainings, run in four ways.

The device perturbs the results of one call, makes them NaN or raises an error; a layer gets other weights, another
epsilon or activation, the optimizer another rate, the batch other classes; float16 overflows, forward or backward.
``teco train compare`` compares each with a correct run (on the CPU, on the card, float32 with mixed precision),
``dumper(check_overflow=True)`` examines the faulty run alone, and the reported operator is repeated from the file
alone, on the CPU and on a device with the same fault.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from parts.bench import arguments, finish

os.environ.setdefault("TORCH_SDAA_RANDOM", "cpu")  # read when the device is made
import numpy as np
import torch
from parts.trained_faults import TRAININGS, Reached, Training, Way, planted, train
from torch import nn

from engine.training import OpCall, as_numbers, open_training_dump, read_call
from toolkit.cli import execute
from torch_sdaa.dump.replay import replayed
from torch_sdaa.faults.operator_faults import OpFault

WAYS = {
    "cpu": (Way("cpu"), Way()),
    "card": (Way(), Way()),
    "amp": (Way(), Way(precision="amp")),
    "apex": (Way(), Way(precision="apex")),
}
"""The healthy run, and the one with the fault."""

DEVICE_KINDS = ("perturb", "perturb", "nan", "deny")
SCRIPT_KINDS = ("weights", "epsilon")
OTHER_KINDS = ("activation", "rate", "classes")
WANTED, LEAST = 0.95, 0.02
"""Share of the faults to be named, and how far a result is off at least."""


@dataclass(frozen=True, slots=True)
class Row:
    """One fault.

    Attributes:
        planted: the faulty call, or the module. named: report of the tool. found: whether they agree.
        replays: whether the call, repeated from the file alone, shows the fault again; ``None``: nothing was named.
    """

    training: str
    way: str
    kind: str
    planted: str
    named: str
    found: bool
    replays: bool | None
    seconds: float


class Bench:
    """A correct training, run in one way, and its faults."""

    def __init__(self, name: str, way: str, folder: Path) -> None:
        self.name, self.way, self._folder = name, way, folder
        self._training: Training = TRAININGS[name]
        self._healthy, self._judged = WAYS[way]
        self._a, self._like = folder / "a.h5", folder / "like.h5"
        train(self._training, self._healthy, self._a)
        train(self._training, self._judged, self._like)
        with open_training_dump(self._like) as dump:
            calls = [call for call in dump.calls if _can_be_hit(call)]
        reached = Reached(list(dict.fromkeys(call.op for call in calls)))
        train(self._training, self._judged, folder / "reached.h5", inside=reached)
        self._reached = reached.calls
        self._calls = [call for call in calls if call.where in reached.calls]

    def healthy(self) -> Row:
        """Return the row of the run without a fault, in which nothing may be reported."""
        begin = time.perf_counter()
        named = self._compare(self._like)
        return self._row("healthy", "", named, named == "", None, begin)

    def device(self, kind: str, seed: int) -> Row:
        """Inject a fault into the device."""
        draw = np.random.default_rng([seed, *map(ord, self.name + self.way + kind)])
        call = self._calls[draw.integers(len(self._calls))]
        fault = OpFault(kind, call.op, self._reached[call.where], draw.uniform(LEAST, 0.5))
        path = self._folder / f"{kind}{seed}.h5"
        begin = time.perf_counter()
        with planted(fault):
            found = train(self._training, self._judged, path, check_overflow=True, use_dump=True)
        named = self._compare(path)
        right = named == call.where
        if kind == "nan":  # is found without the healthy run as well
            right = right and bool(found.overflows) and found.overflows[0].where == call.where
        replays = self._replays(path, named, replace(fault, call=0)) if named == call.where else False
        path.unlink()
        return self._row(kind, call.where, named, right, replays, begin)

    def script(self, kind: str, seed: int) -> Row:
        """Change a layer of the model."""
        draw = np.random.default_rng([seed, *map(ord, self.name + self.way + kind)])
        names = [name for name, one in self._training.model().named_modules() if isinstance(one, _CHANGED[kind])]
        name = str(draw.choice(names))
        path = self._folder / f"{kind}{seed}.h5"
        begin = time.perf_counter()

        def changed(model: nn.Module) -> None:
            layer: Any = model.get_submodule(name)
            if kind == "weights":
                layer.weight.data *= 1.2
            else:
                layer.eps = 0.5

        train(self._training, replace(self._judged, changed=changed), path)
        report = self._report(path)
        bad = report["first_bad"] or {"call": "", "module": ""}
        right = bad["module"].partition(".")[2] == name and bad["phase"] == "forward"
        again = _same_again(path, bad["call"])
        path.unlink()
        return self._row(kind, name, f"{bad['call']} of {bad['module']}", right, again, begin)

    def other(self, kind: str) -> Row:
        """Change the script otherwise: an activation, the learning rate or the batch."""

        def changed(model: nn.Module) -> None:
            owner: Any = next(one for one in model.modules() if hasattr(one, "act"))
            owner.act = nn.functional.softplus

        made = {"activation": {"changed": changed}, "rate": {"rate": 1.1}, "classes": {"turned": True}}[kind]
        path = self._folder / f"{kind}.h5"
        begin = time.perf_counter()
        train(self._training, replace(self._judged, **made), path)  # type: ignore[arg-type]
        bad = self._report(path)["first_bad"] or {"call": "", "op": "", "phase": "", "why": "", "module": ""}
        right = {
            "activation": bad["op"] == "aten.softplus.default" and bad["phase"] == "forward",
            "rate": bad["phase"] == "optimizer",
            "classes": "which no operator made" in bad["why"] and bad["op"].startswith(("aten.nll", "aten._to_copy")),
        }[kind]
        again = _same_again(path, bad["call"])
        path.unlink()
        return self._row(kind, kind, f"{bad['call']} of {bad['module']}", right, again, begin)

    def _compare(self, path: Path) -> str:
        bad = self._report(path)["first_bad"]
        return str(bad["call"]) if bad else ""

    def _report(self, path: Path) -> dict[str, Any]:
        file = self._folder / "found.json"
        with contextlib.redirect_stdout(io.StringIO()):
            execute(["train", "compare", str(self._a), str(path), "--json", str(file)])
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return found

    def _replays(self, path: Path, named: str, fault: OpFault) -> bool:
        """Return whether the file alone shows the fault: other results on the CPU, the same ones on such a device."""
        held = read_call(path, named)
        right = replayed(replace_outputs(held, self._like), "cpu") if fault.kind == "deny" else replayed(held, "cpu")
        try:
            with planted(fault):
                wrong = replayed(held, "sdaa")
        except RuntimeError as error:
            return fault.kind == "deny" and "denied" in str(error) and bool(right)
        was = [as_numbers(array, one.dtype) for array, one in zip(held.outputs, held.call.outputs, strict=True)]
        same = all(np.array_equal(x, y, equal_nan=True) for x, y in zip(was, wrong, strict=True))
        other = any(not np.array_equal(x, y, equal_nan=True) for x, y in zip(was, right, strict=True))
        return same and other

    def _row(self, kind: str, where: str, named: str, found: bool, replays: bool | None, begin: float) -> Row:
        return Row(self.name, self.way, kind, where, named, found, replays, time.perf_counter() - begin)


_COPIES = ("aten._to_copy", "aten.zeros", "aten.ones", "aten.copy_", "aten.clone")
_CHANGED: dict[str, Any] = {
    "weights": (nn.Linear, nn.Conv2d),
    "epsilon": (nn.LayerNorm, nn.BatchNorm2d, nn.GroupNorm),
}


def replace_outputs(held: Any, healthy: Path) -> Any:
    """Return a failed call with its results in a correct run, to repeat it."""
    like = read_call(healthy, held.call.where)
    call = replace(held.call, outputs=like.call.outputs, written=like.call.written)
    return type(held)(call, held.inputs, like.outputs, held.state)


def _can_be_hit(call: OpCall) -> bool:
    """Return whether a fault in a call changes a value that matters."""
    floats = any(one.dtype.startswith(("float", "bfloat")) and 0 not in one.shape for one in call.outputs)
    own = call.device.startswith("sdaa") and not (call.view or call.empty or call.draws)
    return own and floats and not call.op.startswith(_COPIES)


# ------------------------------------------------------------------------------------------------------- overflow


def overflows(name: str, precision: str, phase: str, folder: Path) -> Row:
    """Make one layer overflow in float16, and search for it in that run alone."""
    training = TRAININGS[name]
    layers = [found for found, one in training.model().named_modules() if isinstance(one, nn.Linear)]
    layer = layers[-2]

    def changed(model: nn.Module) -> None:
        one: Any = model.get_submodule(layer)
        if phase == "forward":
            one.weight.data *= 1e6
        else:
            one.weight.data *= 1e4
            one.register_forward_pre_hook(lambda _, given: (given[0] * 1e-4,))

    way = Way(precision=precision, scale=1024.0 if phase == "forward" else 2.0**16, changed=changed)
    path = folder / f"{precision}{phase}.h5"
    begin = time.perf_counter()
    found = train(training, way, path, steps=1, check_overflow=True)
    first = found.overflows[0] if found.overflows else None
    named = f"{first.where} of {first.module}, {first.phase}, scale {first.loss_scale:g}" if first else ""
    right = first is not None and first.module.partition(".")[2] == layer and first.phase == phase
    right = right and first.loss_scale == way.scale and first.step == 0
    return Row(
        name,
        precision,
        f"overflow {phase}",
        layer,
        named,
        right,
        _same_again(path, first.where if first else ""),
        time.perf_counter() - begin,
    )


def _same_again(path: Path, where: str) -> bool | None:
    """Return whether a call, repeated on the CPU from the file alone, equals the run bit for bit."""
    if not where:
        return None
    held = read_call(path, where)
    return all(np.array_equal(x, y, equal_nan=True) for x, y in zip(held.outputs, replayed(held, "cpu"), strict=True))


def measured(names: Sequence[str], seeds: int) -> Iterator[Row]:
    """Inject the faults and search for them."""
    for name in names:
        for way in WAYS:
            with tempfile.TemporaryDirectory(prefix="located-") as folder:
                bench = Bench(name, way, Path(folder))
                yield bench.healthy()
                for k, kind in enumerate(DEVICE_KINDS * seeds):
                    yield bench.device(kind, k)
                if way in ("card", "amp"):
                    yield from (bench.script(kind, k) for k in range(seeds) for kind in SCRIPT_KINDS)
                if way != "apex":
                    yield from map(bench.other, OTHER_KINDS)
            _forget_apex()
        for precision in ("amp", "apex"):
            for phase in ("forward", "backward"):
                with tempfile.TemporaryDirectory(prefix="located-") as folder:
                    yield overflows(name, precision, phase, Path(folder))
                _forget_apex()


def _forget_apex() -> None:
    """Undo the effects of ``amp.initialize`` before the next training."""
    apex: Any = sys.modules.get("torch_sdaa.apex.amp")
    if apex is not None:
        apex._state.switch_off()


def show(rows: Sequence[Row]) -> None:
    """Print the number of faults found, by training and kind, and every miss."""
    kinds = list(dict.fromkeys(row.kind for row in rows))
    print(f"{'':18}" + "".join(f"{kind:>19}" for kind in kinds))
    for key in dict.fromkeys((row.training, row.way) for row in rows):
        cells = []
        for kind in kinds:
            some = [row for row in rows if (row.training, row.way, row.kind) == (*key, kind)]
            cells.append(f"{sum(row.found for row in some)} of {len(some)}" if some else "-")
        print(f"{' '.join(key):18}" + "".join(f"{cell:>19}" for cell in cells))
    for row in rows:
        if not row.found or row.replays is False:
            named = row.named or "nothing"
            print(f"{row.training} {row.way} {row.kind}: planted {row.planted}, named {named}; replays {row.replays}")


def main() -> int:
    """Run all; the exit code is 1 on too few located faults, a missed overflow, or a false report."""
    parser = arguments(__doc__)
    parser.add_argument("--seeds", type=int, default=1, help="faults of each kind, training and way")
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows = list(measured(["images"] if args.quick else list(TRAININGS), args.seeds))
    show(rows)
    faults = [row for row in rows if row.kind != "healthy"]
    alarms = sum(not row.found for row in rows if row.kind == "healthy")
    missed = sum(not row.found for row in rows if row.kind.startswith("overflow"))
    found, again = sum(row.found for row in faults), [row.replays for row in faults if row.replays is not None]
    print(f"named {found} of {len(faults)}, replayed {sum(again)} of {len(again)}")
    print(f"overflows missed {missed}, false alarms {alarms}")
    result = {"share": found / len(faults), "false_alarms": alarms, "overflows_missed": missed, "wanted": WANTED}
    finish("located_training_faults", {**result, "rows": [asdict(row) for row in rows]}, args)
    return 1 if alarms or missed or found / len(faults) < WANTED or not all(again) else 0


if __name__ == "__main__":
    sys.exit(main())
