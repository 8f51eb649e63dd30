"""Tools around the zoo, as functions; ``cli.py`` is the ``teco`` command."""

from tecoinfer_modelzoo import check

check("engine", "utils")
