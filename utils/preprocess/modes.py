"""The ways to decode and resize a picture, in a module the command line may import without Pillow."""

from __future__ import annotations

DECODES = ("exact", "fused", "reduced")
"""Ways from file to cropped picture, from exact to fast; ``classification_common.preprocess_pictures`` states their
exactness."""
