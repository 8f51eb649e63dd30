"""Replay of dumped calls on the CPU or on a device. The only module of this folder that imports PyTorch."""

from __future__ import annotations

from collections.abc import Sequence

from engine import Array, ConfigError, DataError
from engine.training import Recorded
from tecoinfer_modelzoo.text import did_you_mean, one_line


class Repeater:
    """Replays calls on a device; raise ConfigError if PyTorch or the device is not available."""

    def __init__(self, device: str = "cpu") -> None:
        try:
            import torch
        except ModuleNotFoundError as error:
            raise ConfigError("PyTorch is not installed, which repeats the operators") from error
        from torch_sdaa.dump import replay

        self._replay, self.device = replay, device
        try:
            torch.empty(0, device=device)
        except (RuntimeError, AssertionError) as error:
            kind = device.partition(":")[0]
            hint = "" if kind in ("cpu", "sdaa") else did_you_mean(kind, ("cpu", "sdaa"))
            raise ConfigError(f"device {device!r} cannot be used:{hint or f' {one_line(error)}'}") from error

    def refusal(self, recorded: Recorded) -> str:
        """Return the error of a call that failed in the run and fails again; "" if it succeeds now."""
        try:
            self._replay.called(recorded, self.device)
        except DataError:
            raise
        except (RuntimeError, ValueError, TypeError, IndexError) as error:  # errors raised by operators
            return one_line(error)
        return ""

    def outputs(self, recorded: Recorded) -> Sequence[Array]:
        """Return the results of a repeated call; raise DataError if the call cannot be repeated."""
        try:
            return self._replay.replayed(recorded, self.device)
        except DataError:
            raise
        except Exception as error:  # operators raise any type of error
            raise DataError(f"{recorded.call.where} fails when it is repeated: {one_line(error)}") from error
