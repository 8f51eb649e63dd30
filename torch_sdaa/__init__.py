"""The simulated T1 card as a PyTorch device: ``import torch, torch_sdaa``, then device ``"sdaa"``, ``"sdaa:0"``, ...

Values are those of PyTorch's own CPU kernels, bit for bit; time, memory and faults are the card's, simulated by
``engine.sdaa``. ``torch.sdaa`` is the module that ``torch.cuda`` is for CUDA.
"""

import os
import sys

if "torch" not in sys.modules:
    # libgomp reads it when it is loaded; threads that spin while they wait slow a step down on shared cores.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from torch_sdaa.start import start as _start

_start()
