"""``teco transplant`` under a familiar file name: ``python transplant/ms_fmk_transplt.py -i ...``."""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    # The folder of a script is first on the path; the packages of the zoo are in its parent.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
    from transplant.__main__ import main

    sys.exit(main())
