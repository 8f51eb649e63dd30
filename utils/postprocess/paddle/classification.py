"""Postprocessing of PaddlePaddle's classifiers: the functions for PyTorch, which apply to any framework."""

from utils.postprocess.pytorch.classification import ClassScore, Labels, answers, labels_from, postprocess, scores

__all__ = ["ClassScore", "Labels", "answers", "labels_from", "postprocess", "scores"]
