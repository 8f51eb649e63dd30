"""Preprocess functions for tests of the process mode: a child process must be able to import them."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np

Rows = list[np.ndarray]


def stack(samples: Rows) -> np.ndarray:
    time.sleep(0.004 * float(samples[0][0] % 4))  # later batches overtake earlier ones
    return np.stack(samples)


def into(samples: Rows, out: np.ndarray | None = None) -> np.ndarray:
    out = np.empty((len(samples), *samples[0].shape), np.float32) if out is None else out
    assert out.shape == (len(samples), *samples[0].shape)
    for i, sample in enumerate(samples):
        out[i] = sample * 3
    return out


def turned(samples: Rows, out: np.ndarray | None = None) -> np.ndarray:
    """Give another view of the memory that it was given."""
    return into(samples, out)[:, ::-1]


def two(samples: Rows) -> list[np.ndarray]:
    return [np.stack(samples).astype(np.float16), np.arange(len(samples))]


def picky(samples: Rows) -> np.ndarray:
    if any(sample[0] in (1, 6, 7, 8) for sample in samples):
        raise ValueError("bad luck")
    return np.stack(samples)


def deadly(samples: Rows) -> np.ndarray:
    for sample in samples:
        if sample[0] == 4:
            os.kill(os.getpid(), signal.SIGKILL)
        if sample[0] == 8:
            os._exit(7)
        if sample[0] == 9:
            raise OSError("unreadable")
    return np.stack(samples)


def buggy(samples: Rows) -> np.ndarray:
    return samples[0] + {}[float(samples[0][0])]


class PeculiarError(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


def peculiar(samples: Rows) -> np.ndarray:
    raise PeculiarError(1, 2)


def holding_the_lock(samples: Rows) -> np.ndarray:
    total = 0
    for i in range(30_000 * len(samples)):
        total += i % 7
    return np.stack(samples) + np.float32(total % 1)


class Busy:
    """Write the process id to a folder, then be busy for a long time."""

    def __init__(self, folder: Path, stubborn: bool = False) -> None:
        self.folder, self.stubborn = folder, stubborn

    def __call__(self, samples: Any) -> np.ndarray:
        if self.stubborn:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        (self.folder / str(os.getpid())).touch()
        time.sleep(60)
        return np.stack(samples)


def stopping(samples: Rows) -> np.ndarray:
    for sample in samples:
        if sample[0] == 4:
            os.kill(os.getpid(), signal.SIGSTOP)
    return np.stack(samples)
