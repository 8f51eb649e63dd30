"""Earlier path and names of :mod:`torch_sdaa.cost.predicted_cost`, imported by scripts."""

from torch_sdaa.cost.predicted_cost import PredictedCost as Foretold, observe, predict_cost as foretell

__all__ = ["Foretold", "foretell", "observe"]
