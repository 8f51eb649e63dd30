"""The developer tools of the zoo, as functions and as the ``teco`` command (``cli.py``)."""

from tecoinfer_modelzoo import check

check("engine", "utils")
