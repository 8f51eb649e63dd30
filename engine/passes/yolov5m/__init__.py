"""Pass for YOLOv5: the slices before its first convolution, and its activations."""
