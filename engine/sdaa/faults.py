"""Fault injection: faults of a SPA, and the steps in which they occur."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from tecoinfer_modelzoo.errors import ConfigError

FAULTS_VARIABLE = "TECO_SIM_FAULTS"
"""Environment variable with faults to inject, such as ``lose:spa=1,step=3; slow:spa=0,step=0,factor=2``."""

Kind: TypeAlias = Literal["lose", "hang", "slow", "oom", "nan"]

_ENTRY = re.compile(r"(?P<kind>\w+):(?P<fields>[\w.=,\s]+)")


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    ``lose``: the SPA is lost from then on. ``hang``: it does not answer, and is lost after the card's heartbeat.
    ``slow``: ``factor`` times slower from then on. ``oom``: out of memory in that step. ``nan``: float outputs are NaN.
    """

    kind: Kind
    spa: int  # index of the SPA on the card
    step: int  # the call in which it occurs, from 0
    factor: float = 1.0  # for ``slow``

    def strikes(self, step: int) -> bool:
        """Return whether the fault is active in this step."""
        return step >= self.step if self.kind in ("lose", "hang", "slow") else step == self.step


def parse_faults(text: str) -> list[Fault]:
    """Parse ``kind:spa=K,step=N[,factor=F]``, several separated by ``;``; raise ConfigError for malformed text."""
    return [_parse(entry.strip()) for entry in text.split(";") if entry.strip()]


def faults_from_environment() -> list[Fault]:
    """Return the faults in ``TECO_SIM_FAULTS``."""
    return parse_faults(os.environ.get(FAULTS_VARIABLE, ""))


def _parse(entry: str) -> Fault:
    match = _ENTRY.fullmatch(entry)
    if match is None or match["kind"] not in get_args(Kind):
        raise ConfigError(
            f"{FAULTS_VARIABLE}: {entry!r} is not a fault; write kind:spa=K,step=N with kind one of "
            f"{', '.join(get_args(Kind))} (slow also takes factor=F)"
        )
    parts = [part.partition("=") for part in match["fields"].split(",")]
    fields = {name.strip(): value.strip() for name, _, value in parts}
    wanted = {"spa", "step", "factor"} if match["kind"] == "slow" else {"spa", "step"}
    if len(parts) != len(wanted) or set(fields) != wanted:
        raise ConfigError(f"{FAULTS_VARIABLE}: {entry!r} must give {', '.join(sorted(wanted))}, each once")
    try:
        fault = Fault(match["kind"], int(fields["spa"]), int(fields["step"]), float(fields.get("factor", "1")))  # type: ignore[arg-type]
    except ValueError as error:
        raise ConfigError(f"{FAULTS_VARIABLE}: {entry!r}: spa and step must be whole numbers ({error})") from error
    if not 1 <= fault.factor < float("inf"):
        raise ConfigError(f"{FAULTS_VARIABLE}: {entry!r}: factor must be a number of at least 1")
    return fault


def check_spas(faults: Sequence[Fault], count: int) -> None:
    """Raise ConfigError if a fault names a SPA that the card does not have, or a negative step."""
    for fault in faults:
        if fault.step < 0:
            raise ConfigError(f"{FAULTS_VARIABLE}: step {fault.step} does not exist; the first is 0")
        if not 0 <= fault.spa < count:
            raise ConfigError(
                f"{FAULTS_VARIABLE}: SPA {fault.spa} does not exist; this card has {count} (0 to {count - 1})"
            )
