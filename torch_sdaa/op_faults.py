"""The path that :mod:`torch_sdaa.faults.operator_faults` had before: scripts import it."""

from torch_sdaa.faults.operator_faults import OpFault, calls, clear, parse, plant

__all__ = ["OpFault", "calls", "clear", "parse", "plant"]
