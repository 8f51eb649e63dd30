"""A classifier's outputs mean the same whichever framework it came from: PyTorch's functions under Paddle's path."""

from utils.postprocess.pytorch.classification import Answer, Labels, answers, labels_from, postprocess, scores

__all__ = ["Answer", "Labels", "answers", "labels_from", "postprocess", "scores"]
