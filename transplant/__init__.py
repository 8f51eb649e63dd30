"""Moves CUDA training scripts onto the card by their source: ``teco transplant``, or ``python -m transplant``.

Nothing but the spans that the list of changes names is touched, and what no rule can decide is listed for a person.
"""

from tecoinfer_modelzoo.extra import extra as _extra

with _extra("teco transplant", "transplant"):
    import libcst as _libcst  # noqa: F401 - every module needs it; here its absence is one line
