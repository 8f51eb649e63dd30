"""Folders of transformers: ``config.json``, a tokenizer, and weights or none."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from engine import ConfigError
from tecoinfer_modelzoo.files import read_regular
from tecoinfer_modelzoo.json_values import plain_json
from tecoinfer_modelzoo.text import did_you_mean
from toolkit.adapt.licences import check_copy
from toolkit.adapt.sources.base import Export, Source, Taken, download_words, rendered
from toolkit.adapt.work import Work, content_of
from utils.export.forms import FORMS

CONFIG = "config.json"

WEIGHTS = ("model.safetensors", "pytorch_model.bin")
"""Files of weights; the first one that exists is read."""

SUPPORTED = (
    "text encoders (bert, roberta, xlm-roberta, camembert, distilbert, electra, albert) that end in "
    "ForTokenClassification, ForSequenceClassification or ForQuestionAnswering, and image classifiers that end in "
    "ForImageClassification"
)
"""What has an export, for the error about anything else."""


class TransformersFolder(Source):
    """A folder as transformers' ``save_pretrained`` writes it; without weights the network is random.

    Attributes:
        heads: task of the zoo by the end of an architecture's name. own: files that the export needs. further: files
            that are copied if they are there. template: of the export script. requirements: its packages.
        kinds: supported values of ``model_type``; empty: those of transformers. weights_help: row of the README.
    """

    heads: ClassVar[Mapping[str, str]]
    own: ClassVar[Sequence[str]]
    further: ClassVar[Sequence[str]] = ()
    kinds: ClassVar[Sequence[str]] = ()
    template: ClassVar[str]
    requirements: ClassVar[Sequence[str]]
    weights_help: ClassVar[str]
    more_flags: ClassVar[Sequence[tuple[str, str, str]]] = ()

    @classmethod
    def takes(cls, model: str) -> bool:
        """Return whether a word is a folder."""
        return bool(model) and Path(model).is_dir()

    @property
    def folder(self) -> Path:
        """The folder."""
        return Path(self.model)

    @property
    def usual_name(self) -> str:
        """The folder's name."""
        return self.folder.resolve().name

    def _weights(self) -> Path | None:
        return next((self.folder / name for name in WEIGHTS if (self.folder / name).is_file()), None)

    def _files(self) -> list[str]:
        return [*self.own, *(name for name in self.further if (self.folder / name).is_file())]

    def inputs(self, work: Work) -> Mapping[str, Any]:
        """The files, and what the user says about them."""
        files = [self.folder / name for name in self._files()] + [file for file in [self._weights()] if file]
        return work.request.part("name", "source", "licence") | {file.name: content_of(file) for file in files}

    def take(self, work: Work) -> Taken:
        """Read the configuration. Raises ConfigError for an architecture that the zoo cannot export."""
        config, request, weights = self._config(), work.request, self._weights()
        task = self._task(config)
        missing = next((name for name in self.own if not (self.folder / name).is_file()), None)
        if missing is not None:
            raise ConfigError(
                f"{self.folder} has no {missing}; give a folder as transformers' save_pretrained writes it"
            )
        licence = request.licence or str(config.get("license") or "")
        read_in = "--licence" if request.licence else CONFIG if licence else ""
        if weights is not None:
            check_copy(licence, read_in, weights.name)
        architecture = self.architecture()
        return Taken(
            kind=self.kind,
            title=request.name.replace("_", " ").title(),
            publisher=request.source or str(config.get("_name_or_path") or ""),
            licence=licence,
            licence_from=read_in,
            task=task,
            reason=f"its {CONFIG} names the architecture {architecture}",
            random=weights is None,
            committed=weights.stat().st_size if weights is not None else 0,
            about={"architecture": architecture, "weights": weights.name if weights is not None else "random"},
        )

    def _config(self) -> dict[str, Any]:
        path = self.folder / CONFIG
        if not path.is_file():
            raise ConfigError(
                f"{self.folder} has no {CONFIG}; give a folder as transformers' save_pretrained writes it"
            )
        try:
            found = plain_json(read_regular(path).decode())
        except (OSError, ValueError) as error:
            raise ConfigError(f"{path} is not JSON ({error}); save the model again") from error
        if not isinstance(found, dict):
            raise ConfigError(f"{path} is not a JSON object; save the model again")
        return found

    def architecture(self) -> str:
        """Return the architecture that ``config.json`` names; empty if there is none, or no such file."""
        try:
            named = self._config().get("architectures")
        except ConfigError:  # which take() reports
            return ""
        return str(named[0]) if isinstance(named, list) and named else ""

    def _task(self, config: Mapping[str, Any]) -> str:
        """Return the task of the zoo. Raises ConfigError if the architecture has no export here."""
        found, path = self.architecture(), self.folder / CONFIG
        kind = str(config.get("model_type", ""))
        fix = "export the model to ONNX yourself, and give the file"
        task = next((task for end, task in self.heads.items() if found.endswith(end)), "")
        if not found:
            raise ConfigError(f"{path} names no architecture ('architectures'); add it. Supported are {SUPPORTED}")
        if not task:
            raise ConfigError(f"{path}: architecture {found!r} has no export here; supported are {SUPPORTED}; {fix}")
        if self.kinds and kind not in self.kinds:
            near = did_you_mean(kind, self.kinds)
            raise ConfigError(
                f"{path}: architecture {found!r} has model_type {kind!r}, which has no export here;{near} supported "
                f"are {SUPPORTED}; {fix}"
            )
        return task

    def export(self, work: Work) -> Export:
        """Return a script that builds the network of the folder ``weights/``."""
        name, weights = work.request.name, self._weights()
        files = {f"weights/{one}": self.folder / one for one in self._files()}
        own = "" if weights is None else f"weights/{weights.name}"
        if weights is not None:
            files[own] = weights
        source = work.request.source or str(work.facts("take_in").get("about", {}).get("architecture", name))
        script = rendered(
            self.template,
            name=name,
            source=json.dumps(source, ensure_ascii=False),
            **download_words(work, own, weights),
        )
        return Export(
            script=script,
            stem=name,
            files=files,
            weights=own,
            requirements=self.requirements,
            flags=[
                ("`--weights`", self.weights_help, "`weights`"),
                *self.more_flags,
                ("`--forms`", f"the files to write: {', '.join(FORMS)}", "all"),
                ("`--out`", "folder of the ONNX files", "this folder"),
            ],
            text=f"It builds the network of `{CONFIG}`, and compares each file with it.",
        )


class TextFolder(TransformersFolder):
    """A text encoder with a head, which the zoo builds itself."""

    form, kind = "FOLDER of transformers", "folder of transformers"
    heads: ClassVar = {
        "ForTokenClassification": "token_classification",
        "ForSequenceClassification": "text_classification",
        "ForQuestionAnswering": "question_answering",
    }
    own: ClassVar = (CONFIG, "tokenizer.json")
    kinds: ClassVar = ("bert", "roberta", "xlm-roberta", "camembert", "distilbert", "electra", "albert")
    template: ClassVar = "export_text.py"
    requirements: ClassVar = ("onnxsim>=0.4.36", "safetensors", "torch>=2.9")
    weights_help: ClassVar = "folder of `config.json`, `tokenizer.json` and weights, which are random if missing"
    more_flags: ClassVar = (("`--length`", "tokens of a text in the static file", "64"),)
