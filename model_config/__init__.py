"""The functional check of the zoo: runs the cases of ``model.yaml`` with ``python -m model_config.check``.

``cases`` reads and validates the case files, ``run`` executes the steps, ``judge`` compares accuracy and speed,
``reports`` writes the results, and ``check`` is the command line.
"""

from tecoinfer_modelzoo import check

check("engine", "utils")
