"""Mixed precision with the interface of NVIDIA's apex, for scripts with ``from apex import amp``.

After ``import torch_sdaa``, ``import apex`` imports this package if no apex is installed; an installed one takes
precedence. ``from torch_sdaa import apex`` always imports it. It has ``apex.amp``, ``apex.optimizers`` and
``apex.parallel``, which are imported on first use.
"""

from torch_sdaa.apex import amp, optimizers, parallel

__all__ = ["amp", "optimizers", "parallel"]
