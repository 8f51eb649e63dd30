"""Folders of transformers with an image classifier: ``config.json``, ``preprocessor_config.json``, weights or none."""

from __future__ import annotations

from typing import ClassVar

from toolkit.adapt.sources.text_folders import TransformersFolder


class ImageFolder(TransformersFolder):
    """An image classifier, which the package transformers builds; without weights it is random."""

    form, kind = "FOLDER of transformers", "folder of transformers"
    heads: ClassVar = {"ForImageClassification": "classification"}
    own: ClassVar = ("config.json",)
    further: ClassVar = ("preprocessor_config.json",)
    template: ClassVar = "export_images.py"
    requirements: ClassVar = ("onnxsim>=0.4.36", "safetensors", "torch>=2.9", "torchvision", "transformers>=5")
    weights_help: ClassVar = (
        "folder of `config.json`, `preprocessor_config.json` and weights, which are random if missing"
    )

    @classmethod
    def takes(cls, model: str) -> bool:
        """Return whether a word is a folder whose ``config.json`` names an image classifier."""
        return super().takes(model) and cls(model).architecture().endswith(tuple(cls.heads))
