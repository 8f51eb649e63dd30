"""Where float16 is too narrow for a model: predicted from float32 values, and seen in the card's storage.

Predicted: a float32 value whose magnitude is beyond 65504, or below the smallest normal 2 ** -14 and not 0. Actual, in
the faithful float16 form: Inf, NaN, saturated (65504 itself, where float32 is beyond it), or flushed (0 where float32
is not). Counts are of elements over the whole data set. Constants are looked at by themselves, whatever the data.
"""

from toolkit.overflow.ranges import ACTUAL, PREDICTED, NodeRange
from toolkit.overflow.search import find_overflow
from toolkit.overflow.weights import WeightRange, find_weights, weight_lead, weight_notes

__all__ = [
    "ACTUAL",
    "PREDICTED",
    "NodeRange",
    "WeightRange",
    "find_overflow",
    "find_weights",
    "weight_lead",
    "weight_notes",
]
