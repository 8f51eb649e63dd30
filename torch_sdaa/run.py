"""``python -m torch_sdaa.run SCRIPT ARGUMENTS``: run a CUDA script on sdaa without changes."""

from __future__ import annotations

from torch_sdaa.transfer.runner import main

if __name__ == "__main__":
    main()
