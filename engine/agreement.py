"""How near an int8 engine's answers are to float32's."""

from __future__ import annotations

from dataclasses import dataclass
from math import floor


@dataclass(frozen=True, slots=True)
class Agreement:
    """What an int8 engine answers for its calibration samples, against float32 on the baseline.

    Attributes:
        cosine: of the output that agrees least: the lower of that of all its samples as one vector, and of the mean
            over samples where one has eight numbers or more. Outputs of whole numbers count only where there are no
            others.
        output: name of that output.
        samples: how many there were.
        recipe: how the int8 model was made, where the engine has several ways.
    """

    cosine: float
    output: str
    samples: int
    recipe: str = ""

    @property
    def text(self) -> str:
        """Say it in a few words."""
        made = f", recipe {self.recipe}" if self.recipe else ""
        return f"cosine {_shown(self.cosine)} to float32 on {self.samples} calibration samples{made}"


def _shown(cosine: float) -> str:
    """Return a cosine with four digits, rounded down: what is refused at 0.99 does not read 0.9900."""
    return f"{floor(cosine * 1e4) / 1e4:.4f}"
