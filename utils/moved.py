"""Import moved modules by their old names, which scripts outside the repository and stored results still use.

A moved module is imported under its old name with a :class:`DeprecationWarning`. If the old name is a package now, the
package has the names of one of its modules (:func:`names_of_module`).
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import sys
import warnings
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

MOVED = {
    "utils.datasets.boxes": "utils.datasets.image.boxes",
    "utils.datasets.clicks": "utils.datasets.tabular.clicks",
    "utils.datasets.criteo_like": "utils.datasets.synthetic.criteo_like",
    "utils.datasets.digit_lines": "utils.datasets.synthetic.digit_lines",
    "utils.datasets.digit_scenes": "utils.datasets.synthetic.digit_scenes",
    "utils.datasets.fact_stories": "utils.datasets.synthetic.fact_stories",
    "utils.datasets.graphs.labelled_graph": "utils.datasets.graphs.files",
    "utils.datasets.histories": "utils.datasets.tabular.histories",
    "utils.datasets.labelled_graph": "utils.datasets.graphs.files",
    "utils.datasets.molecules": "utils.datasets.graphs.molecules",
    "utils.datasets.node_graphs": "utils.datasets.graphs.node_graphs",
    "utils.datasets.rated_snippets": "utils.datasets.text.rated_snippets",
    "utils.datasets.ratings": "utils.datasets.tabular.ratings",
    "utils.datasets.splits": "utils.datasets.tabular.splits",
    "utils.datasets.text_pages": "utils.datasets.synthetic.text_pages",
    "utils.export.bert_encoder": "utils.export.networks.bert_encoder",
    "utils.export.bert_heads": "utils.export.networks.bert_heads",
    "utils.export.classifier_script": "utils.export.scripts.classifier",
    "utils.export.click_models": "utils.export.networks.click_models",
    "utils.export.criteo_tables": "utils.export.networks.criteo_tables",
    "utils.export.detectors": "utils.export.scripts.detector",
    "utils.export.gpt_decoder": "utils.export.networks.gpt_decoder",
    "utils.export.gpt_script": "utils.export.scripts.gpt",
    "utils.export.graph_models": "utils.export.networks.graph_models",
    "utils.export.graph_script": "utils.export.scripts.graph",
    "utils.export.jina_encoder": "utils.export.networks.jina_encoder",
    "utils.export.owl_detectors": "utils.export.networks.owl_detectors",
    "utils.export.policies": "utils.export.networks.policies",
    "utils.export.policy_script": "utils.export.scripts.policy",
    "utils.export.random_weights": "utils.export.networks.random_weights",
    "utils.export.segmenter_script": "utils.export.scripts.segmenter",
    "utils.export.sentences_script": "utils.export.scripts.sentences",
    "utils.export.small_tokenizers": "utils.export.networks.small_tokenizers",
    "utils.export.text_classifier_script": "utils.export.scripts.text_classifier",
    "utils.export.text_models": "utils.export.networks.text_models",
    "utils.export.torchvision_detectors": "utils.export.networks.torchvision_detectors",
    "utils.export.torchvision_models": "utils.export.networks.torchvision_models",
    "utils.export.transformers_detectors": "utils.export.networks.transformers_detectors",
    "utils.extra": "tecoinfer_modelzoo.extra",
    "utils.metrics.answers": "utils.metrics.text.answers",
    "utils.metrics.faces": "utils.metrics.detection.faces",
    "utils.metrics.page_reading": "utils.metrics.text.page_reading",
    "utils.metrics.perplexity": "utils.metrics.text.perplexity",
    "utils.metrics.transcripts": "utils.metrics.text.transcripts",
    "utils.policy_training": "utils.export.networks.policy_training",
    "utils.preprocess.graphs.dense": "utils.preprocess.graphs.messages",
    "utils.progress": "tecoinfer_modelzoo.progress",
    "utils.tasks.embedding": "utils.tasks.common.embedding",
    "utils.tasks.item_index": "utils.tasks.item_recommendation.index",
    "utils.tasks.parallel_transcription": "utils.tasks.nonautoregressive_asr",
    "utils.tasks.speech_recognition_stream": "utils.tasks.speech_recognition.stream",
    "utils.tasks.text_recognition_input": "utils.tasks.text_recognition.task",
    "utils.tasks.voice_activity_steps": "utils.tasks.voice_activity.steps",
    "utils.training": "utils.export.networks.training",
}
"""Old name -> new name of every moved module that documentation, examples or templates have mentioned."""


class _Finder:
    """Finder and loader; not of ``importlib.abc``, which takes 10 ms to import."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        loader: Any = self
        return importlib.machinery.ModuleSpec(fullname, loader) if fullname in MOVED else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        new = MOVED[spec.name]
        warnings.warn(f"{spec.name} is {new} now; import that", DeprecationWarning, stacklevel=2)
        module = importlib.import_module(new)
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__ = module.__spec__.loader_state  # its own, replaced by the import under the old name


def names_of_module(package: str, module: str) -> Callable[[str], Any]:
    """Return a ``__getattr__`` (PEP 562) that gives a package the public names of one of its modules.

    Args:
        package: its ``__name__``, formerly of a module.
        module: name of the module in it.
    """

    def find(name: str) -> Any:
        if name.startswith("_") or importlib.util.find_spec(f"{package}.{name}") is not None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{package}.{module}"), name)

    return find


sys.meta_path.append(_Finder())
