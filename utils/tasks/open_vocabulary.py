"""Open-vocabulary detection (OWL-ViT and similar): the classes are texts, the queries of a run."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from engine import Array, ConfigError, ModelError, TensorSpec
from utils.datasets.base import Dataset
from utils.postprocess.image.nms import Detections
from utils.preprocess.text.tokens import tokenized
from utils.tasks import Compare, Flag, Prepared
from utils.tasks.detection.task import Detection

TOKENIZER = "tokenizer"
"""The key under which an export stores its ``tokenizer.json``."""

TEMPLATE = "a photo of a {}"
"""Text that the names of a data set's classes are inserted into."""


class OpenVocabulary(Detection):
    """Detection with text inputs; the engine recomputes the query embeddings with every batch."""

    name = "open_vocabulary"
    domain_default = False
    template = None
    flags = (
        *Detection.flags,
        Flag("--queries", "texts to look for (default: the data set's classes)", None, nargs="+", metavar="TEXT"),
        Flag("--template", "text that the data set's classes are inserted into", TEMPLATE),
    )
    # classes depend on the run, so there is nothing to compare or to write that the export decided
    writes, metadata_key, export_settings = "", "", ()
    reference_answers, diagnostics = Compare.reference_answers, Compare.diagnostics

    _classes: Sequence[str] = ()
    """The data set's classes, used if no queries are given."""

    def check(self) -> None:
        """Check the options."""
        super().check()
        if "{}" not in self.options.template:
            raise ConfigError(f"--template {self.options.template!r} must contain {{}} in place of the class name")

    def load(self, paths: Mapping[str, Path]) -> Dataset:
        """Return the images and their objects; their classes become the queries if none are given."""
        dataset = super().load(paths)
        targets = getattr(dataset, "targets", None)  # a folder of images has none
        if targets:
            self._classes = targets[0].categories
        return dataset

    @property
    def labels(self) -> list[str]:
        """Names of the queries in the answers. Raises ConfigError if queries are missing."""
        found = self.options.queries or self._classes
        if not found:
            raise ConfigError(f'{self.model.ckpt}: queries are missing; pass --queries "a cat" "a dog"')
        return list(found)

    @property
    def texts(self) -> list[str]:
        """The queries as the model reads them."""
        return self.options.queries or [self.options.template.format(name) for name in self.labels]

    @property
    def image_specs(self) -> tuple[TensorSpec, ...]:
        """The image input: the first one."""
        return self.model.inputs[:1]

    def prepare(self, samples: Sequence[Path], *, out: Array | None = None) -> Prepared:
        """Put images into the first input, and the queries' tokens into ``input_ids`` and ``attention_mask``.

        The queries are the same for all images, so these two inputs have no batch axis: Q x L. If the engine has plans
        for certain numbers of queries, rows of 0 pad to the smallest that fits; the model ignores them.

        Raises:
            DataError: An image cannot be read.
            ConfigError: Queries are missing, too many or too long.
            ModelError: The export stored no tokenizer, or the model has other inputs.
        """
        images = super().prepare(samples)
        return images._replace(arrays=[*images.arrays, *self._tokens()])

    def _tokens(self) -> list[Array]:
        """Return the inputs with the queries' tokens, in the model's order."""
        model = self.model
        description = model.stored.json(TOKENIZER)
        if not isinstance(description, dict):
            raise ModelError(f"{model.ckpt}: stores no tokenizer; export it with --tokenizer tokenizer.json")
        specs = {spec.name: spec for spec in model.inputs[1:]}
        if not {"input_ids"} <= set(specs) <= {"input_ids", "attention_mask"} or len(specs["input_ids"].shape) != 2:
            raise ModelError(
                f"{model.ckpt}: has inputs {', '.join(specs)} after the images; expected input_ids, Q x L, and "
                "optionally attention_mask"
            )
        texts = self.texts
        count, length = specs["input_ids"].shape
        if length is None:
            raise ModelError(f"{model.ckpt}: the length of its texts is open; export it with a fixed one")
        plans = model.sizes(1 + list(specs).index("input_ids"), 0)
        if plans and len(texts) > plans[-1]:
            symbol = (specs["input_ids"].symbols or ("", ""))[0]
            fix = f"give fewer, or --dim {symbol}={len(texts)}" if count is None else "give fewer"
            raise ConfigError(f"{model.ckpt}: {len(texts)} queries, and it takes {plans[-1]} at most; {fix}")
        rows = plans[bisect_left(plans, len(texts))] if plans else len(texts)
        tokens = tokenized(texts, description, length, model.ckpt)
        found = dict(zip(("input_ids", "attention_mask"), tokens, strict=True))
        empty = rows - len(texts)
        return [np.pad(found[name], ((0, empty), (0, 0))).astype(spec.dtype) for name, spec in specs.items()]

    def decode(self, outputs: Any, contexts: Any) -> list[Detections]:
        """Return the detections of each image, without those of padded queries."""
        found, known = super().decode(outputs, contexts), len(self.labels)
        kept = [one.classes < known for one in found]
        return [Detections(*(column[some] for column in one)) for one, some in zip(found, kept, strict=True)]
