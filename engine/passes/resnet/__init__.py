"""Pass for convolutional classifiers: batch norms and constant affine steps folded into weights."""
