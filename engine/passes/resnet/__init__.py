"""Passes for convolutional classifiers: batch norms and constant affine steps are folded into weights."""
