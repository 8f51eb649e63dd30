"""Extreme performance: one model at one shape as fast as it goes, on any target, and sweeps over batches.

``tecoexec --onnx=FILE --input_shapes=16*3*224*224 --fp16`` runs one shape,
``python -m tecoexec.sweep`` a configured list of them.
"""

from tecoinfer_modelzoo import check

check("engine", "utils")
