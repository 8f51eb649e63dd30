"""The simulated T1 card as a PyTorch device: ``import torch, torch_sdaa``, then device ``"sdaa"``, ``"sdaa:0"``, ...

Values are those of PyTorch's own CPU kernels, bit for bit; time, memory and faults are the card's, simulated by
``engine.sdaa``. ``torch.sdaa`` is the module that ``torch.cuda`` is for CUDA. Where the vendor's own ``torch_sdaa`` is
installed, importing this one gives that one, and says so.
"""

import os
import sys

from torch_sdaa.loading.vendor import step_aside as _step_aside

if not _step_aside():
    if sys.modules.get("torch") is None:
        # libgomp reads it when it is loaded; threads that spin while they wait slow a step down on shared cores.
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
