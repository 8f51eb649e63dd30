"""Earlier path of :mod:`torch_sdaa.faults.operator_faults`, imported by scripts."""

from torch_sdaa.faults.operator_faults import OpFault, calls, clear, parse, plant

__all__ = ["OpFault", "calls", "clear", "parse", "plant"]
