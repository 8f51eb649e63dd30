"""Classification networks by name: ``torchvision:NAME`` and ``timm:NAME``."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import Any, ClassVar

from engine import ConfigError, TargetError
from toolkit.adapt.licences import check_copy
from toolkit.adapt.sources.base import Export, Source, Taken, download_words, rendered
from toolkit.adapt.work import Work, content_of
from utils.export.forms import FORMS

RANDOM, PUBLISHED = "random", "DEFAULT"
"""Values of ``--weights``."""

ENDINGS = (".pth", ".pt", ".bin", ".ckpt", ".safetensors")
"""Endings of files of weights."""


class _Network(Source):
    """A network of a package; nothing is copied: the export builds it."""

    package: ClassVar[str]
    path: ClassVar[str]
    """What precedes the name in the export script."""

    @property
    def usual_name(self) -> str:
        """The network's name."""
        return self.word.partition(".")[0]

    def inputs(self, work: Work) -> Mapping[str, Any]:
        """The weights, and the package's version."""
        own, file = work.request.part("name", "weights", "source", "licence"), _file_of(work)
        own["weights_content"] = content_of(file) if file is not None else ""
        return own | {"version": self._about()["version"]}

    def _about(self) -> Mapping[str, Any]:
        """Return the package's metadata, with names in lower case and underscores."""
        try:
            return metadata(self.package).json
        except PackageNotFoundError as error:
            raise TargetError(f"{self.package} is not installed; run: pip install {self.package}") from error

    def take(self, work: Work) -> Taken:
        """Read what the package says of itself. Raises ConfigError if the weights' file cannot be used."""
        about, request, file = self._about(), work.request, _file_of(work)
        if file is not None and not file.is_file():
            raise ConfigError(f"{file} does not exist; check --weights")
        if file is not None:
            check_copy(request.licence, "--licence", file.name)
        licence = str(about.get("license_expression") or about.get("license") or "")
        is_random = request.weights == RANDOM
        urls = [str(line).partition(",")[2].strip() for line in about.get("project_url") or []]
        home = about.get("home_page") or next(iter(urls), f"pip install {self.package}")
        return Taken(
            kind=self.kind,
            title=self.word,
            # who trained weights of a file is known to the user alone
            publisher=request.source or ("" if file is not None else f"{self.package} {about['version']}: {home}"),
            # Random weights have no owner; published ones have a licence of their own, which the package does not tell.
            licence=request.licence or (licence if is_random else ""),
            licence_from="--licence" if request.licence else f"the metadata of {self.package}" if is_random else "",
            task="classification",
            reason=f"{self.package} has it among its classifiers",
            random=is_random,
            committed=bytes_of_file(file),
            about={"weights": file.name if file is not None else request.weights or PUBLISHED},
        )

    def export(self, work: Work) -> Export:
        """Return a script that builds the network."""
        weights, file = work.request.weights or PUBLISHED, _file_of(work)
        if file is not None:
            weights = f"{work.request.name}{''.join(file.suffixes[-1:])}"
        script = rendered(
            "export_network.py",
            arch=f"{self.path}{self.word}",
            package=self.package,
            word=self.word,
            **download_words(work, weights, file),
        )
        return Export(
            script=script,
            stem=self.word,
            files={} if file is None else {weights: file},
            weights="" if file is None else weights,
            params={"weights": weights},
            requirements=["onnxsim>=0.4.36", *dict.fromkeys(("torch>=2.9", "torchvision", self.package))],
            flags=[
                (
                    "`--weights`",
                    "a published name, path of a `.pth` or `.safetensors` file, or `random`",
                    f"`{PUBLISHED}`",
                ),
                ("`--input_size`", "height (and width) in pixels", "that of the weights"),
                ("`--forms`", f"the files to write: {', '.join(FORMS)}", "all"),
                ("`--out`", "folder of the ONNX files", "this folder"),
            ],
            text=f"It builds the network with {self.package}, and compares each file with it.",
        )


def _file_of(work: Work) -> Path | None:
    """Return the file of ``--weights``; ``None`` for a published name or ``random``."""
    given = work.request.weights
    return Path(given) if given.lower().endswith(ENDINGS) or (given and Path(given).is_file()) else None


def bytes_of_file(file: Path | None) -> int:
    """Return the size of a file; 0 without one."""
    return file.stat().st_size if file is not None and file.is_file() else 0


class Torchvision(_Network):
    """A classifier of torchvision."""

    prefix = package = "torchvision"
    form, kind = "torchvision:NAME", "network of torchvision"
    path = ""


class Timm(_Network):
    """A classifier of timm."""

    prefix = package = "timm"
    form, kind = "timm:NAME", "network of timm"
    path = "timm/"
