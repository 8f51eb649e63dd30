"""Migration of CUDA training scripts to the card by their source: ``teco transplant``, or ``python -m transplant``.

Only the spans in the list of changes are modified; places without an applicable rule are listed for manual work.
"""

from tecoinfer_modelzoo.extra import extra as _extra

with _extra("teco transplant", "transplant"):
    import libcst as _libcst  # noqa: F401 - required by every module; reported here if missing
