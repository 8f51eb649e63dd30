"""The network of the digit detector; digit_pose and digit_instances have it as their first layers."""

from utils.export.networks.digit_detector import CLASSES, STRIDE, WIDTHS, DigitDetector, centres, conv

__all__ = ["CLASSES", "STRIDE", "WIDTHS", "DigitDetector", "centres", "conv"]
