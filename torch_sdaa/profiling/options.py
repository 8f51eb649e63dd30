"""What the end-to-end profiler is told to collect: ``torch.sdaa.profileConfig``."""

from __future__ import annotations

from typing import Any

from tecoinfer_modelzoo.text import did_you_mean

ARITHMETIC, PIPES, MEMORY = 0, 1, 2
NO_METRICS = 0xFF

DEFAULTS = {
    "ACL_PROF_ACL_API": True,
    "ACL_PROF_TASK_TIME": True,
    "ACL_PROF_AICORE_METRICS": True,
    "ACL_PROF_AICPU": True,
    "ACL_PROF_L2CACHE": False,
    "ACL_PROF_HCCL_TRACE": True,
    "ACL_PROF_TRAINING_TRACE": False,
}
_KINDS = {ARITHMETIC: "arithmetic", PIPES: "pipes", MEMORY: "memory", NO_METRICS: "none"}
_NO_COUNTERS = {3: "inner buffers", 4: "conflicts in pipelines"}


class profileConfig:  # noqa: N801 -- the name that scripts use
    """Which layers and figures a profile has.

    Args:
        options: ``ACL_PROF_ACL_API`` (runtime and launches), ``ACL_PROF_TASK_TIME`` (the devices' times),
            ``ACL_PROF_AICORE_METRICS`` (figures by operator, of the kind that ``aiCoreMetricsType`` says: 0 arithmetic,
            1 compute and copies, 2 memory, 0xFF none), ``ACL_PROF_AICPU`` (operators without a rule for their price),
            ``ACL_PROF_HCCL_TRACE`` (collectives), ``ACL_PROF_TRAINING_TRACE`` (forward, backward, update by step).

    Raises:
        TypeError: there is no such option, or its value is of another kind.
        ValueError: the simulated card has no such counters.
    """

    def __init__(self, **options: Any) -> None:
        self.metrics = _KINDS[ARITHMETIC]
        self._on = dict(DEFAULTS)
        kind = options.pop("aiCoreMetricsType", ARITHMETIC)
        for name, value in options.items():
            if name not in DEFAULTS:
                known = (*DEFAULTS, "aiCoreMetricsType")
                near = did_you_mean(name, known)
                raise TypeError(f"profileConfig has no option {name!r};{near} options: {', '.join(known)}")
            if not isinstance(value, bool):
                raise TypeError(f"profileConfig: {name} is True or False, not {value!r}")
            self._on[name] = value
        if self._on["ACL_PROF_L2CACHE"]:
            raise ValueError("profileConfig: ACL_PROF_L2CACHE: the card's description has no cache; leave it False")
        if isinstance(kind, bool) or not isinstance(kind, int) or kind not in (*_KINDS, *_NO_COUNTERS):
            kinds = ", ".join(f"{number:#x} {name}" for number, name in _KINDS.items())
            raise TypeError(f"profileConfig: aiCoreMetricsType is one of {kinds}, not {kind!r}")
        if kind in _NO_COUNTERS:
            raise ValueError(
                f"profileConfig: aiCoreMetricsType={kind}: the simulated card has no counters of {_NO_COUNTERS[kind]}; "
                "use 0, 1, 2 or 0xFF"
            )
        self.metrics = _KINDS[kind] if self._on["ACL_PROF_AICORE_METRICS"] else _KINDS[NO_METRICS]

    def wants(self, name: str) -> bool:
        """Say whether something is collected, by its name without ``ACL_PROF_``."""
        return self._on[f"ACL_PROF_{name}"]
