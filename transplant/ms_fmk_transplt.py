"""``teco transplant`` by the file name that people know: ``python transplant/ms_fmk_transplt.py -i ...``."""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    # A script's own folder is first on the path; the packages of the zoo lie one above.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
    from transplant.__main__ import main

    sys.exit(main())
