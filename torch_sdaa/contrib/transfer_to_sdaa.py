"""Run a CUDA script on sdaa by importing this module: ``from torch_sdaa.contrib import transfer_to_sdaa``.

``transfer_to_sdaa.report()`` returns the redirected names, ``restore()`` ends the redirection, ``start()`` starts it
again. To run a script without changes: ``python -m torch_sdaa.run SCRIPT ARGUMENTS``, or this module instead.
"""

from __future__ import annotations

from torch_sdaa.transfer.switch import is_on, report, restore, start, table
from torch_sdaa.transfer.words import NotOnSdaaError

__all__ = ["NotOnSdaaError", "is_on", "report", "restore", "start", "table"]

start()

if __name__ == "__main__":
    from torch_sdaa.transfer.runner import main

    main()
