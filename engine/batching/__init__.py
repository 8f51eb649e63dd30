"""Batch axes of a model, proof that its samples are independent, and execution of calls in parts.

    found = find_batching(model)
    if not found.independent:
        print(found.reason)  # node 'sum' (CumSum) works along the batch axis of 'x'

Each engine has a :class:`engine.batching.batch.Batching`. It starts with batch axes guessed from the declared shapes
(:func:`engine.signature.batch_axes`) and analyses the graph only if necessary.

The analysis (:mod:`engine.batching.trace`) propagates shapes with a symbolic number of samples. It classifies every
tensor: equal for all samples; row ``b`` computed from sample ``b`` alone (independent of the index ``b`` and of the
number of samples); or neither. Operators have rules (:mod:`engine.batching.rules`); without a rule nothing is proven.
"""

from typing import TYPE_CHECKING

from tecoinfer_modelzoo.lazy import lazily

if TYPE_CHECKING:
    from engine.batching.batch import batch_of as batch_of, fits as fits, run_sharded as run_sharded, split as split
    from engine.batching.independence import batching_of as batching_of

_HOMES = {"engine.batching.batch": "batch_of fits run_sharded split", "engine.batching.independence": "batching_of"}
__getattr__, __dir__ = lazily(__name__, _HOMES)
