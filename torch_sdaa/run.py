"""``python -m torch_sdaa.run SCRIPT ARGUMENTS``: runs a script written for CUDA, untouched, on sdaa."""

from __future__ import annotations

from torch_sdaa.transfer.runner import main

if __name__ == "__main__":
    main()
