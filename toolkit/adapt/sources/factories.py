"""PyTorch modules: ``FILE.py:FACTORY``, a function without arguments that returns one."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine import ConfigError
from tecoinfer_modelzoo.files import read_regular
from tecoinfer_modelzoo.text import did_you_mean, one_line
from toolkit.adapt.licences import check_copy
from toolkit.adapt.sources.base import Export, Source, Taken, download_words, rendered
from toolkit.adapt.work import Work, content_of
from utils.export.forms import FORMS

OWN = "own"
"""Value of ``--weights`` for a factory that returns trained weights."""


class Factory(Source):
    """A file that is copied as ``model.py``, with its weights if there are any."""

    form, kind = "FILE.py:FACTORY", "PyTorch module"

    def __init__(self, model: str) -> None:
        super().__init__(model)
        place, _, self.factory = model.rpartition(":")
        self.file = Path(place)
        if not self.factory.isidentifier():
            raise ConfigError(f"MODEL {model!r}: {self.factory!r} is not the name of a function; write {self.form}")

    @classmethod
    def takes(cls, model: str) -> bool:
        """Return whether a word names a Python file and something in it."""
        return model.rpartition(":")[0].endswith(".py")

    @property
    def usual_name(self) -> str:
        """The function's name, or that of the file if it says nothing."""
        return self.file.stem if self.factory in ("build", "factory", "create", "make", "model") else self.factory

    def _weights(self, work: Work) -> Path | None:
        """Return the file of weights, or ``None``."""
        given = work.request.weights
        return Path(given) if given and given not in (OWN, "random") else None

    def inputs(self, work: Work) -> Mapping[str, Any]:
        """The file, the weights, and the shapes of the inputs."""
        weights = self._weights(work)
        own = work.request.part("name", "shapes", "dtypes", "weights", "source", "licence")
        return own | {"file": content_of(self.file), "weights_content": content_of(weights) if weights else ""}

    def take(self, work: Work) -> Taken:
        """Check that the files exist, and that the shapes of the inputs are given."""
        request, weights = work.request, self._weights(work)
        for file in (self.file, weights):
            if file is not None and not file.is_file():
                raise ConfigError(f"{file} does not exist; check MODEL and --weights")
        _check_function(self.file, self.factory)
        if not request.shapes:
            raise ConfigError(f"MODEL {self.model!r}: give the shape of each input of forward: --shape x=1,3,224,224")
        wrong = next((name for name in request.dtypes if name not in request.shapes), None)
        if wrong is not None:
            raise ConfigError(f"--input_dtype {wrong}: give --shape {wrong}=... too")
        if weights is not None:
            check_copy(request.licence, "--licence", weights.name)
        is_random = request.weights in ("", "random")
        return Taken(
            kind=self.kind,
            title=request.name.replace("_", " ").title(),
            publisher=request.source,
            licence=request.licence,
            licence_from="--licence" if request.licence else "",
            random=is_random,
            committed=weights.stat().st_size if weights is not None else 0,
            about={"weights": weights.name if weights else "random" if is_random else "of the factory"},
        )

    def export(self, work: Work) -> Export:
        """Return a script that calls the factory."""
        request, weights = work.request, self._weights(work)
        name = request.name
        own = f"{name}{weights.suffix}" if weights is not None else ""
        default = own or ("random" if request.weights in ("", "random") else OWN)
        script = rendered(
            "export_factory.py",
            name=name,
            factory=self.factory,
            shapes=json.dumps({key: list(shape) for key, shape in request.shapes.items()}),
            dtypes=json.dumps(dict(request.dtypes)),
            default=f'str(HERE / "{own}")' if own else json.dumps(default),
            source=json.dumps(request.source or f"{name}/model.py", ensure_ascii=False),
            **download_words(work, own, weights),
        )
        files = {"model.py": self.file} | ({own: weights} if weights is not None else {})
        return Export(
            script=script,
            stem=name,
            files=files,
            weights=own,
            requirements=["onnxsim>=0.4.36", "torch>=2.9"],
            flags=[
                (
                    "`--weights`",
                    f"path of a state dict, `random`, or `{OWN}`: those that the function returns",
                    f"`{default}`",
                ),
                ("`--forms`", f"the files to write: {', '.join(FORMS)}", "all"),
                ("`--exporter`", "`dynamo` analyses the code, `torchscript` traces one run", "`dynamo`"),
                ("`--out`", "folder of the ONNX files", "this folder"),
            ],
            text=f"It calls `{self.factory}` of `model.py`, and compares each file with the module.",
        )


def _check_function(file: Path, name: str) -> None:
    """Raise ConfigError if a Python file cannot be read, or defines nothing of a name; its code does not run."""
    try:
        tree = ast.parse(read_regular(file), str(file))
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError) as error:
        where = f"{file}:{error.lineno}" if isinstance(error, SyntaxError) and error.lineno else str(file)
        reason = error.msg if isinstance(error, SyntaxError) else one_line(error)
        raise ConfigError(f"{where}: cannot be read as Python ({reason}); correct it") from error
    functions = [node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))]
    if name in functions:
        return
    others = [node for node in ast.walk(tree) if isinstance(node, (ast.Name, ast.alias, ast.FunctionDef, ast.ClassDef))]
    names = {node.id if isinstance(node, ast.Name) else (getattr(node, "asname", None) or node.name) for node in others}
    if name not in names and "*" not in names:
        has = did_you_mean(name, functions) or f" it has {', '.join(functions) or 'none'}"
        raise ConfigError(f"{file} defines no function {name!r};{has}")
