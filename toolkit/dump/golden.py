"""A dump in the place of an engine: its values are the reference, from whatever machine they are."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from engine import Array, DataError
from toolkit.dump.store import Dump, open_dump
from toolkit.graph.inputs import input_specs
from toolkit.graph.trace import Traced
from toolkit.graph.weights import source


class Golden(Traced):
    """The values of a dump, as if they were computed now.

    Args:
        path: the model the dump is of. dump: where it is.

    Raises:
        DataError: the dump is damaged, or not one tensor of the model is in it.
    """

    def __init__(self, path: Path, dump: Path) -> None:
        original = source(path).model
        self.dump: Dump = open_dump(dump)
        super().__init__(path, dump.name, str(self.dump.about.get("dtype", "")), original)
        self.origin = {name: name for name in self.kinds if name in self.dump.tensors}
        if not self.origin:
            raise DataError(
                f"{dump} is of {self.dump.about.get('model')}: it holds no tensor of {path}; dump that model"
            )
        self.inputs = input_specs(original)
        self.half = frozenset(name for name in self.origin if self.dump.tensors[name].dtype == "float16")

    def run(self, inputs: Sequence[Array], only: Collection[str] | None = None) -> dict[str, Array]:
        """Return the dump's values, whatever the inputs; the engine it is compared with is to take the dump's too."""
        names = [name for name in self.origin if only is None or name in only]
        return {name: self.dump.read(self.dump.tensors[name]) for name in names}

    @property
    def lacks(self) -> str:
        """Say where a tensor was looked for."""
        return f"not in dump {self.target}"

    def given(self) -> list[Array]:
        """Return the inputs that the values were computed from.

        Raises:
            DataError: the dump lacks them.
        """
        return self.dump.inputs([spec.name for spec in self.inputs])
