"""Environments that do what none should, for the tests: registered when this module is imported."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Walk(gymnasium.Env):  # type: ignore[misc]
    """A walk on a line: action 1 is a step to the right, 0 to the left; it ends after ``length`` steps.

    What is odd begins with seeds that ``odd`` divides (0: with none).
    """

    def __init__(self, kind: str = "", odd: int = 0, length: int = 5, actions: Any = None) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.action_space = spaces.Discrete(2) if actions is None else actions
        self.kind, self.odd, self.length = kind, odd, length

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place, self.steps = float(self.np_random.uniform(-1, 1)), 0
        self.off = bool(self.odd) and seed is not None and seed % self.odd == 0
        if self.kind == "chance":
            self.place = float(np.random.uniform(-1, 1))
        if self.off and self.kind == "reset":
            raise OSError("no such track")
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.place += 0.1 * (2 * float(np.ravel(action)[0]) - 1)
        self.steps += 1
        if self.off and self.steps == 3:
            if self.kind == "raise":
                raise RuntimeError("the wheel\nbroke")
            if self.kind == "exit":
                raise SystemExit("bye")
            if self.kind == "shape":
                return np.zeros(3, np.float32), 0.0, False, False, {}
            if self.kind == "nan":
                return np.full(2, np.nan, np.float32), 0.0, False, False, {}
            if self.kind == "reward":
                return self._seen(), float("nan"), False, False, {}
        ended = self.steps >= self.length and not (self.off and self.kind == "endless")
        return self._seen(), -abs(self.place), ended, False, {}

    def _seen(self) -> Any:
        return np.array([self.place, self.steps], np.float32)


class Chance(Walk):
    """Takes its chance from elsewhere than its seed, and can be drawn."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012 -- gymnasium's own form

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__("chance")
        self.render_mode = render_mode

    def render(self) -> Any:
        return np.zeros((8, 8, 3), np.uint8)


class Reuse(Walk):
    """Shows the same array at every step, and writes into the action that it is given; it cannot even be closed."""

    def __init__(self) -> None:
        super().__init__(actions=spaces.Box(-1, 1, (1,), np.float32))
        self.held = np.zeros(2, np.float32)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        found = super().step(action)
        action[:] = 7
        return found

    def _seen(self) -> Any:
        self.held[:] = super()._seen()
        return self.held

    def close(self) -> None:
        raise RuntimeError("cannot close")


class Spaceless(gymnasium.Env):  # type: ignore[misc]
    """Does not say what it shows."""


class Made(Walk):
    """Cannot be made."""

    def __init__(self) -> None:
        raise ValueError("no display")


class GaveUp(BaseException):
    """What a library of Rust raises: no Exception."""


class Panic(Walk):
    """Cannot be made, and says so in its own way."""

    def __init__(self) -> None:
        raise GaveUp("no display")


class Smear(Chance):
    """Cannot be drawn, nor closed, and says so in its own way."""

    def render(self) -> Any:
        raise GaveUp("no canvas")

    def close(self) -> None:
        raise GaveUp("no end")


def register() -> None:
    """Register all of them, once."""
    rows: dict[str, dict[str, Any]] = {"Plain-v0": {}}
    rows |= {
        f"{kind.title()}-v0": {"kind": kind, "odd": 4} for kind in ("raise", "reset", "shape", "nan", "reward", "exit")
    }
    rows |= {"Endless-v0": {"kind": "endless", "odd": 4}, "Never-v0": {"kind": "endless", "odd": 1}}
    rows["Push-v0"] = {"actions": spaces.Box(-1, 1, (1,), np.float32)}
    rows["Pairs-v0"] = {"actions": spaces.MultiDiscrete([2, 3])}
    rows["Bits-v0"] = {"actions": spaces.MultiBinary(2)}
    rows["Words-v0"] = {"actions": spaces.Text(3)}
    for name, given in rows.items():
        if name not in gymnasium.registry:
            gymnasium.register(id=name, entry_point=Walk, kwargs=given)
    classes = {
        "Made-v0": Made,
        "Chance-v0": Chance,
        "Reuse-v0": Reuse,
        "Spaceless-v0": Spaceless,
        "Panic-v0": Panic,
        "Smear-v0": Smear,
    }
    for name, made in classes.items():
        if name not in gymnasium.registry:
            gymnasium.register(id=name, entry_point=made)


register()
