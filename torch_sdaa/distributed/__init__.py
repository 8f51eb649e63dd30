"""``torch.distributed`` on the device: backend ``tccl``, which gloo carries and the card's clock times.

Registered when ``torch_sdaa`` is imported, at no cost: importing torch imports ``torch.distributed``.
"""

from __future__ import annotations

import torch


def register() -> None:
    """Make ``tccl`` a backend, and the default one of the device; a torch without ``torch.distributed`` stays so."""
    if not torch.distributed.is_available():
        return
    from torch_sdaa.distributed import backend, joining, same_model

    backend.register()
    joining.explain()
    same_model.verify_first()
