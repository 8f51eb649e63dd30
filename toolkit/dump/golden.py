"""A dump used in place of an engine, as the reference of a comparison."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from engine import Array, DataError
from toolkit.dump.store import Dump, open_dump
from toolkit.graph.inputs import input_specs
from toolkit.graph.trace import Traced
from toolkit.graph.weights import source


class Golden(Traced):
    """The values of a dump of a model as a traced model.

    Raise DataError if the dump is damaged, or contains no tensor of the model.
    """

    def __init__(self, path: Path, dump: Path) -> None:
        original = source(path).model
        self.dump: Dump = open_dump(dump)
        super().__init__(path, dump.name, str(self.dump.about.get("dtype", "")), original)
        self.origin = {name: name for name in self.kinds if name in self.dump.tensors}
        if not self.origin:
            raise DataError(
                f"{dump} is a dump of {self.dump.about.get('model')} without a tensor of {path}; dump that model"
            )
        self.inputs = input_specs(original)
        self.half = frozenset(name for name in self.origin if self.dump.tensors[name].dtype == "float16")

    def run(self, inputs: Sequence[Array], only: Collection[str] | None = None, keep: bool = False) -> dict[str, Array]:
        """Return the values of the dump; ``inputs`` are ignored."""
        names = [name for name in self.origin if only is None or name in only]
        return {name: self.dump.read(self.dump.tensors[name]) for name in names}

    @property
    def lacks(self) -> str:
        """Status of a tensor that is not in the dump."""
        return f"not in dump {self.target}"

    def given(self) -> list[Array]:
        """Return the inputs of the dump; raise DataError if the dump lacks an input."""
        return self.dump.inputs([spec.name for spec in self.inputs])
