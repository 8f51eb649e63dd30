"""A classifier's outputs mean the same whichever framework it came from: PyTorch's functions under Paddle's path."""

from utils.postprocess.pytorch.classification import ClassScore, Labels, answers, labels_from, postprocess, scores

__all__ = ["ClassScore", "Labels", "answers", "labels_from", "postprocess", "scores"]
