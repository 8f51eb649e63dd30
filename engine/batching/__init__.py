"""Which axis of every input and output of a model is the batch, and a proof that samples do not depend on one another.

    found = find_batching(model)
    if not found.proven:
        print(found.reason)  # node 'sum' (CumSum) works along the batch axis of 'x'

The graph is followed with the number of samples as a symbol (:mod:`engine.batching.trace`), and every tensor is known
to be the same for all samples, to have row ``b`` made of sample ``b`` alone (and not of ``b`` itself, nor of how many
there are), or not to be. Each operator has a rule (:mod:`engine.batching.rules`); one without a rule proves nothing.
"""

from engine.batching.find import Batching, find_batching

__all__ = ["Batching", "find_batching"]
