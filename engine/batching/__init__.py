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

RANDOM = frozenset(
    ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
)
"""Operators that draw random numbers, whose results differ between calls."""
