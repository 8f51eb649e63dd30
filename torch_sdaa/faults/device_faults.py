"""Fault injection in a training: ``TECO_SIM_FAULTS``, as for inference, with devices as SPAs and optimizer steps as
steps.

``spa=K`` is device ``sdaa:K``. A step ends when ``Optimizer.step`` returns: launches before the first return are step
0, on every device, and a script with two optimizers counts both. A process without an optimizer stays in step 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch.optim.optimizer import register_optimizer_step_post_hook

from engine.sdaa import FAULTS_VARIABLE, CardDescription, Fault, check_spas, faults_from_environment
from torch_sdaa.loading.core import C

OK, LOST, NO_HEARTBEAT = "OK", "DEVICE_LOST", "HEARTBEAT_ERROR"


class Faults:
    """The faults of this process at the current step.

    Attributes:
        step: number of optimizer steps that have returned.
        health: of each device: ``OK``, ``DEVICE_LOST`` or ``HEARTBEAT_ERROR``.
    """

    def __init__(self, faults: Sequence[Fault], card: CardDescription, devices: int) -> None:
        self.step = 0
        self.health = [OK] * devices
        self._faults, self._card = faults, card
        self._inject()

    def stepped(self, *_: Any) -> None:
        """Begin the next step; the arguments are those of an optimizer's hook."""
        self.step += 1
        self._inject()

    def clear(self) -> None:
        """Make every device healthy again."""
        self._faults = ()
        for device in range(len(self.health)):
            C.lose(device, "", 0.0)
            self.health[device] = OK
        self._inject()

    def _inject(self) -> None:
        for device in range(len(self.health)):
            here = [fault for fault in self._faults if fault.spa == device and fault.strikes(self.step)]
            kinds = {fault.kind for fault in here}
            slower = 1.0
            for fault in here:
                slower *= fault.factor if fault.kind == "slow" else 1.0
            C.set_slow(device, slower)
            C.set_fault(device, "oom", "oom" in kinds)
            C.set_fault(device, "nan", "nan" in kinds)
            if self.health[device] == OK and kinds & {"lose", "hang"}:
                self._lose(device, LOST if "lose" in kinds else NO_HEARTBEAT)

    def _lose(self, device: int, health: str) -> None:
        self.health[device] = health
        hangs = health == NO_HEARTBEAT
        waited = f", given up after {self._card.heartbeat_ms:g} ms without an answer" if hangs else ""
        why = (
            f"sdaa:{device} of {self._card.name}: {health} in step {self.step} (simulated{waited}); its memory is "
            f"lost: start again from the last checkpoint on another device, or remove the fault from {FAULTS_VARIABLE}"
        )
        C.lose(device, why, self._card.heartbeat_ms * 1e-3 if hangs else 0.0)


_faults: Faults | None = None


def start(card: CardDescription, devices: int) -> None:
    """Read ``TECO_SIM_FAULTS``; without faults no hook is registered.

    Raises:
        ConfigError: it is invalid, or names a device that this process does not see.
    """
    global _faults
    asked = faults_from_environment()
    check_spas(asked, devices)
    if asked and devices:
        _faults = Faults(asked, card, devices)
        register_optimizer_step_post_hook(_faults.stepped)


def health_of(device: int) -> str:
    """Return the health of a device."""
    return OK if _faults is None else _faults.health[device]


def stop() -> None:
    """End all faults, so that code at exit does not meet them."""
    if _faults is not None:
        _faults.clear()
