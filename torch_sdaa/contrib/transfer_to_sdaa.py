"""Importing this lets a script written for CUDA run on sdaa: ``from torch_sdaa.contrib import transfer_to_sdaa``.

``transfer_to_sdaa.report()`` tells what was redirected, ``restore()`` ends it and ``start()`` begins again. A script
that is not to be touched is run by ``python -m torch_sdaa.run SCRIPT ARGUMENTS``, or by this module in its place.
"""

from __future__ import annotations

from torch_sdaa.transfer.switch import is_on, report, restore, start, table
from torch_sdaa.transfer.words import NotOnSdaaError

__all__ = ["NotOnSdaaError", "is_on", "report", "restore", "start", "table"]

start()

if __name__ == "__main__":
    from torch_sdaa.transfer.runner import main

    main()
