"""Benchmark of a model at one shape on any target, and sweeps over batch sizes.

``tecoexec --onnx=FILE --input_shapes=16*3*224*224 --fp16`` runs one shape, ``python -m tecoexec.sweep`` a configured
list.
"""

from tecoinfer_modelzoo import check

check("engine", "utils")
