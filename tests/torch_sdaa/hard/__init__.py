"""Common uses of a device, as named checks: ``python -m tests.torch_sdaa.hard --orders 20 --seed S``.

Mixed precision is checked as far as autocast, the scaler and custom functions go. Process groups, sharding and the
transfer of scripts are another part's.
"""

from tests.torch_sdaa.hard import (
    books as books,
    capture as capture,
    devices as devices,
    functional as functional,
    gradients as gradients,
    layouts as layouts,
    mistakes as mistakes,
    numbers as numbers,
    optimizers as optimizers,
    processes as processes,
    queues as queues,
    recurrent as recurrent,
    storages as storages,
    threading_checks as threading_checks,
)
from tests.torch_sdaa.hard.check import CHECKS as CHECKS, Check as Check
