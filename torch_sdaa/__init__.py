"""The simulated T1 card as a PyTorch device: ``import torch, torch_sdaa``, then device ``"sdaa"``, ``"sdaa:0"``, ...

Values are bit-identical to PyTorch's CPU kernels; time, memory and faults of the card are simulated by ``engine.sdaa``.
``torch.sdaa`` corresponds to ``torch.cuda``. If the vendor's ``torch_sdaa`` is installed, it is imported instead of
this one, and a line reports it.
"""

import os
import sys

from torch_sdaa.loading.vendor import step_aside as _step_aside

if not _step_aside():
    if sys.modules.get("torch") is None:
        # Read by libgomp when it is loaded; spinning threads slow a step down on shared cores.
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
        from torch_sdaa.loading.vendor import need_torch as _need_torch

        _need_torch()

    from torch_sdaa.startup.start import start as _start

    _start()

    from torch_sdaa.dynamo import aot_backend as aot_backend

    if os.environ.get("TORCH_SDAA_TRANSFER"):
        from torch_sdaa.transfer.switch import start_where_asked as _transfer

        _transfer()

    from torch_sdaa.startup.banner import show as _show_banner

    _show_banner()
