"""The path that :mod:`torch_sdaa.cost.predicted_cost` had before, with the names it had: scripts import it."""

from torch_sdaa.cost.predicted_cost import PredictedCost as Foretold, observe, predict_cost as foretell

__all__ = ["Foretold", "foretell", "observe"]
