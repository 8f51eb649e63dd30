"""Calls of a dump repeated on this machine's CPU, or on a device; PyTorch is imported here alone."""

from __future__ import annotations

from collections.abc import Sequence

from engine import Array, ConfigError, DataError, Recorded
from tecoinfer_modelzoo.text import did_you_mean, one_line


class Repeater:
    """Repeats calls.

    Raises:
        ConfigError: there is no PyTorch here, or the device is not there.
    """

    def __init__(self, device: str = "cpu") -> None:
        try:
            import torch
        except ModuleNotFoundError as error:
            raise ConfigError("PyTorch is not installed, and repeats no operator") from error
        from torch_sdaa.dump import replay

        self._replay, self.device = replay, device
        try:
            torch.empty(0, device=device)
        except (RuntimeError, AssertionError) as error:
            kind = device.partition(":")[0]
            hint = "" if kind in ("cpu", "sdaa") else did_you_mean(kind, ("cpu", "sdaa"))
            raise ConfigError(f"device {device!r} cannot be used:{hint or f' {one_line(error)}'}") from error

    def refusal(self, recorded: Recorded) -> str:
        """Return why a call that was refused is refused again; "" where it is not."""
        try:
            self._replay.called(recorded, self.device)
        except DataError:
            raise
        except (RuntimeError, ValueError, TypeError, IndexError) as error:  # what operators raise
            return one_line(error)
        return ""

    def outputs(self, recorded: Recorded) -> Sequence[Array]:
        """Return what a call gives when it is repeated.

        Raises:
            DataError: it cannot be repeated; one line says why.
        """
        try:
            return self._replay.replayed(recorded, self.device)
        except DataError:
            raise
        except Exception as error:  # an operator raises what it likes, and a fault may refuse it
            raise DataError(f"{recorded.call.where} fails when it is repeated: {one_line(error)}") from error
