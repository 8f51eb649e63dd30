"""The agreement of an int8 engine's outputs with float32."""

from __future__ import annotations

from dataclasses import dataclass
from math import floor


@dataclass(frozen=True, slots=True)
class Agreement:
    """Agreement of an int8 engine with float32 on the baseline, measured on its calibration samples.

    Attributes:
        cosine: of the output that agrees least: the lower of the cosine of all its samples as one vector, and of the
            mean over samples if a sample has eight elements or more. Integer outputs count only if all are integers.
        output: name of that output.
        samples: number of samples.
        recipe: how the int8 model was made, if the engine has several ways.
    """

    cosine: float
    output: str
    samples: int
    recipe: str = ""

    @property
    def text(self) -> str:
        """Short description for reports."""
        made = f", recipe {self.recipe}" if self.recipe else ""
        return f"cosine {_shown(self.cosine)} to float32 on {self.samples} calibration samples{made}"


def _shown(cosine: float) -> str:
    """Return a cosine with four digits, rounded down: one refused at 0.99 is not shown as 0.9900."""
    return f"{floor(cosine * 1e4) / 1e4:.4f}"
