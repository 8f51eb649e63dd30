"""Folders of transformers: ``config.json``, a tokenizer, and weights or none."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine import ConfigError
from tecoinfer_modelzoo.files import read_regular
from tecoinfer_modelzoo.json_values import plain_json
from tecoinfer_modelzoo.text import did_you_mean
from toolkit.adapt.licences import check_copy
from toolkit.adapt.sources.base import Export, Source, Taken, rendered
from toolkit.adapt.sources.onnx_files import MOST_COMMITTED
from toolkit.adapt.work import Work, content_of
from utils.export.forms import FORMS

WEIGHTS = ("model.safetensors", "pytorch_model.bin")
"""Files of weights; the first one that exists is read."""

OWN = ("config.json", "tokenizer.json")
"""Files that the export needs."""

HEADS = {
    "ForTokenClassification": "token_classification",
    "ForSequenceClassification": "text_classification",
    "ForQuestionAnswering": "question_answering",
}
"""Task of the zoo by the end of an architecture's name."""


class TextFolder(Source):
    """A folder as transformers' ``save_pretrained`` writes it; without weights the network is random."""

    form, kind = "FOLDER of transformers", "folder of transformers"

    @classmethod
    def takes(cls, model: str) -> bool:
        """Return whether a word is a folder."""
        return Path(model).is_dir()

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

    def inputs(self, work: Work) -> Mapping[str, Any]:
        """The files, and what the user says about them."""
        files = [self.folder / name for name in OWN] + [file for file in [self._weights()] if file]
        return work.request.part("name", "source", "licence") | {file.name: content_of(file) for file in files}

    def take(self, work: Work) -> Taken:
        """Read the configuration. Raises ConfigError for an architecture that the zoo cannot export."""
        config, request, weights = self._config(), work.request, self._weights()
        architecture = self._architecture(config)
        licence = request.licence or str(config.get("license") or "")
        read_in = "--licence" if request.licence else "config.json" if licence else ""
        if weights is not None:
            check_copy(licence, read_in, weights.name)
        return Taken(
            kind=self.kind,
            title=request.name.replace("_", " ").title(),
            publisher=request.source or str(config.get("_name_or_path") or ""),
            licence=licence,
            licence_from=read_in,
            task=next(task for end, task in HEADS.items() if architecture.endswith(end)),
            reason=f"its config.json names the architecture {architecture}",
            random=weights is None,
            committed=weights.stat().st_size if weights is not None else 0,
            about={"architecture": architecture, "weights": weights.name if weights is not None else "random"},
        )

    def _config(self) -> dict[str, Any]:
        path = self.folder / "config.json"
        missing = next((name for name in OWN if not (self.folder / name).is_file()), None)
        if missing is not None:
            raise ConfigError(
                f"{self.folder} has no {missing}; give a folder as transformers' save_pretrained writes it"
            )
        try:
            found = plain_json(read_regular(path).decode())
        except (OSError, ValueError) as error:
            raise ConfigError(f"{path} is not JSON ({error}); save the model again") from error
        if not isinstance(found, dict):
            raise ConfigError(f"{path} is not a JSON object; save the model again")
        return found

    def _architecture(self, config: Mapping[str, Any]) -> str:
        named = config.get("architectures") or []
        found = str(named[0]) if isinstance(named, list) and named else ""
        if not any(found.endswith(end) for end in HEADS):
            near = did_you_mean(found, [f"Bert{end}" for end in HEADS]) if found else ""
            raise ConfigError(
                f"{self.folder / 'config.json'}: architecture {found!r} has no export here;{near} those with one "
                f"end in {', '.join(HEADS)}; export the model to ONNX yourself, and give the file"
            )
        return found

    def export(self, work: Work) -> Export:
        """Return a script that builds the network of the folder ``weights/``."""
        name, weights = work.request.name, self._weights()
        files = {f"weights/{one}": self.folder / one for one in OWN}
        kept = []
        if weights is not None:
            files[f"weights/{weights.name}"] = weights
            kept = [f"weights/{weights.name}"] if weights.stat().st_size <= MOST_COMMITTED else []
        source = work.request.source or str(work.facts("take_in").get("about", {}).get("architecture", name))
        script = rendered("export_text.py", name=name, source=json.dumps(source, ensure_ascii=False))
        return Export(
            script=script,
            stem=name,
            files=files,
            kept=kept,
            requirements=["onnxsim>=0.4.36", "safetensors", "torch>=2.9"],
            flags=[
                ("`--weights`", "folder of `config.json`, `tokenizer.json` and weights, which are random if missing",
                 "`weights`"),
                ("`--length`", "tokens of a text in the static file", "64"),
                ("`--forms`", f"the files to write: {', '.join(FORMS)}", "all"),
                ("`--out`", "folder of the ONNX files", "this folder"),
            ],
            text="It builds the network of `config.json`, and compares each file with it.",
        )  # fmt: skip
