"""Mixed precision in the shape of NVIDIA's apex, for scripts that say ``from apex import amp``.

``import apex`` gives this package after ``import torch_sdaa`` where no apex is installed; one that is installed always
wins. ``from torch_sdaa import apex`` gives it everywhere. Here are ``apex.amp``, ``apex.optimizers`` and
``apex.parallel``; nothing of it is imported before somebody asks.
"""

from torch_sdaa.apex import amp, optimizers, parallel

__all__ = ["amp", "optimizers", "parallel"]
