"""``torch.compile(model, backend="sdaa")``: graphs compiled for the card, and a report on them (:func:`report`)."""

from typing import Any

from torch_sdaa.dynamo.records import Report as Report, clear as clear, report as report


def aot_backend(gm: Any, inputs: Any, **given: Any) -> Any:
    """Compile a traced graph; the modules of PyTorch for this are imported with the first graph."""
    from torch_sdaa.dynamo.backend import aot_backend as compile_graph

    return compile_graph(gm, inputs, **given)
