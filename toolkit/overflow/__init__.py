"""Values beyond the range of float16: predicted from float32 values, and counted in the card's storage.

Predicted: a float32 value with a magnitude above 65504, or below 2 ** -14 (the smallest normal) and not 0. Actual, in
the float16 form: Inf, NaN, saturated (65504 for a larger float32 value), or flushed (0 for a nonzero float32 value).
Counts are numbers of elements over the whole data set. Constants are counted separately.
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
