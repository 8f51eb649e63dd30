"""Where the batch of a model is, a proof that its samples do not depend on one another, and calls cut along it.

    found = find_batching(model)
    if not found.independent:
        print(found.reason)  # node 'sum' (CumSum) works along the batch axis of 'x'

An engine has a :class:`engine.batching.batch.Batching`. It begins with a guess from the declared shapes
(:func:`engine.signature.batch_axes`) and asks the graph where that matters.

The graph is followed with the number of samples as a symbol (:mod:`engine.batching.trace`), and every tensor is known
to be the same for all samples, to have row ``b`` made of sample ``b`` alone (and not of ``b`` itself, nor of how many
there are), or not to be. Each operator has a rule (:mod:`engine.batching.rules`); one without a rule proves nothing.
"""

from typing import TYPE_CHECKING

from tecoinfer_modelzoo.lazy import lazily

if TYPE_CHECKING:
    from engine.batching.batch import (
        batch_of as batch_of,
        fits as fits,
        run_sharded as run_sharded,
        split as split,
    )
    from engine.batching.independence import batching_of as batching_of

_HOMES = {
    "engine.batching.batch": ("batch_of", "fits", "run_sharded", "split"),
    "engine.batching.independence": ("batching_of",),
}
__getattr__, __dir__ = lazily(__name__, _HOMES)
