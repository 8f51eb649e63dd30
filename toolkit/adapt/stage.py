"""The contract of a stage."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from toolkit.adapt.work import Outcome, Work


class Stage(ABC):
    """One step of the adaptation; an object without state.

    Attributes:
        name: on the command line and in the state. title: in the progress view.
        needs: earlier stages whose results it reads; it runs again when these change.
        optional: whether an error is a note, and later stages run all the same.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    needs: ClassVar[tuple[str, ...]] = ()
    optional: ClassVar[bool] = False

    def inputs(self, work: Work) -> Mapping[str, Any]:
        """Return what the result depends on in addition to :attr:`needs`: parts of the request, hashes of files."""
        return {}

    @abstractmethod
    def run(self, work: Work) -> Outcome:
        """Do the work. Raises TecoInferError if it cannot be done."""
