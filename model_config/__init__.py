"""The functional check of the zoo: ``model.yaml`` says how each model is run, ``python -m model_config.check`` runs it.

``config`` reads and checks the files, ``runner`` runs the steps and yields one structured result per step, ``check`` is
the command line.
"""

from tecoinfer_modelzoo import check

check("engine", "utils")
