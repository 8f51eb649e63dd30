"""Text summaries of the devices' time and memory; all figures are simulated."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from engine.sdaa import load_card
from torch_sdaa.cost import prices
from torch_sdaa.loading.core import C

_MIB = 2**20
_pricer: prices.Pricer | None = None


def set_pricer(pricer: prices.Pricer) -> None:
    """Set the pricer of this process's launches."""
    global _pricer
    _pricer = pricer


def pricer() -> prices.Pricer:
    """Return the pricer of this process's launches."""
    if _pricer is None:
        raise RuntimeError("torch_sdaa has not been started")
    return _pricer


@dataclass(frozen=True, slots=True)
class DeviceTimes:
    """Simulated seconds of one device, and its launches.

    Attributes:
        now: end of its last launch. compute: in its compute array. copies: in its copy engines.
        assumed: the part of compute and copies that rests on figures which are neither published nor fitted.
        launches: kernels and copies.
    """

    now: float
    compute: float
    copies: float
    assumed: float
    launches: int

    @property
    def assumed_share(self) -> float:
        """Share of the time, 0 to 1, that rests on assumed figures."""
        spent = self.compute + self.copies
        return self.assumed / spent if spent else 0.0


def device_times(index: int) -> DeviceTimes:
    """Return the simulated times of a device, including all launches so far."""
    C.settle()
    found = C.times(index)
    return DeviceTimes(found["now"], found["compute"], found["copies"], found["assumed"], int(found["launches"]))


def time_summary(top: int = 10) -> str:
    """Return a summary of this process's simulated time as text.

    Args:
        top: number of operators to list, the longest first.
    """
    devices = [(i, device_times(i)) for i in range(C.device_count())]
    used = [(i, times) for i, times in devices if times.launches]
    lines = [f"simulated time on {load_card().name} ({load_card().source.name}); nothing was measured"]
    if not used:
        return "\n".join([*lines, "nothing was launched"])
    lines.append(f"{'device':<8}{'until s':>12}{'compute s':>12}{'copies s':>12}{'launches':>10}{'assumed':>9}")
    for i, t in used:
        lines.append(
            f"sdaa:{i:<3}{t.now:>12.6f}{t.compute:>12.6f}{t.copies:>12.6f}{t.launches:>10}{t.assumed_share:>9.1%}"
        )
    spent = sum(t.compute + t.copies for _, t in used)
    share = sum(t.assumed for _, t in used) / spent if spent else 0.0
    lines += [f"{share:.1%} of the simulated compute and copy time rests on assumed figures{_assumptions()}", *_rough()]
    return "\n".join([*lines, "", *_operators(top)])


def _assumptions() -> str:
    if _pricer is None or not _pricer.assumed:
        return ""
    return ": " + ", ".join(f"{name} ({value})" for name, value in sorted(_pricer.assumed.items()))


def _rough() -> list[str]:
    lines = []
    if _pricer is not None and _pricer.rough:
        lines.append(f"priced as elementwise, because their arithmetic is unknown: {', '.join(sorted(_pricer.rough))}")
    lines += [f"without simulated time: {op}, which could not be priced: {why}" for op, why in C.unpriced().items()]
    return lines


def _operators(top: int) -> list[str]:
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for (op, *_), count, seconds, _ in C.signatures():
        sums[op][0] += count * seconds
        sums[op][1] += count if seconds else 0
    ranked = sorted(((both[0], both[1], op) for op, both in sums.items() if both[0]), reverse=True)[:top]
    lines = [f"{'operator':<44}{'simulated s':>13}{'launches':>10}"]
    return [*lines, *(f"{op:<44}{seconds:>13.6f}{int(count):>10}" for seconds, count, op in ranked)]


def memory_counts(index: int) -> dict[str, Any]:
    """Return a device's memory counts: allocated and freed blocks and bytes, failures, the limit."""
    return {**C.memory_counts(index), "limit": C.memory_limit()}
