"""Configuration of the end-to-end profiler: ``torch.sdaa.profileConfig``."""

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


class profileConfig:  # noqa: N801 -- name used in scripts
    """Layers and figures of a profile.

    Args:
        options: ``ACL_PROF_ACL_API`` (runtime and launches), ``ACL_PROF_TASK_TIME`` (times of the devices),
            ``ACL_PROF_AICORE_METRICS`` (figures by operator, of the type ``aiCoreMetricsType``: 0 arithmetic, 1 compute
            and copies, 2 memory, 0xFF none), ``ACL_PROF_AICPU`` (operators without a price rule),
            ``ACL_PROF_HCCL_TRACE`` (collectives), ``ACL_PROF_TRAINING_TRACE`` (forward, backward, update by step).

    Raises:
        TypeError: an option is unknown, or its value has another type.
        ValueError: the simulated card does not have such counters.
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
                raise TypeError(f"profileConfig: {name} must be True or False, got {value!r}")
            self._on[name] = value
        if self._on["ACL_PROF_L2CACHE"]:
            raise ValueError("profileConfig: ACL_PROF_L2CACHE: the card's description has no cache; leave it False")
        if isinstance(kind, bool) or not isinstance(kind, int) or kind not in (*_KINDS, *_NO_COUNTERS):
            kinds = ", ".join(f"{number:#x} {name}" for number, name in _KINDS.items())
            raise TypeError(f"profileConfig: aiCoreMetricsType must be one of {kinds}, got {kind!r}")
        if kind in _NO_COUNTERS:
            raise ValueError(
                f"profileConfig: aiCoreMetricsType={kind}: the simulated card has no counters of {_NO_COUNTERS[kind]}; "
                "use 0, 1, 2 or 0xFF"
            )
        self.metrics = _KINDS[kind] if self._on["ACL_PROF_AICORE_METRICS"] else _KINDS[NO_METRICS]

    def wants(self, name: str) -> bool:
        """Return whether an item is collected, by its name without ``ACL_PROF_``."""
        return self._on[f"ACL_PROF_{name}"]
