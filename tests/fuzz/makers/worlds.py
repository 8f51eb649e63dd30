"""Environments with faults, defined by JSON in ``ODD_WORLD``: ``when`` (init, reset, step, close), ``at``, ``how``."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

ODD = "\x1b[31mred\u202e\nline"


class _SilentError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class _Other(BaseException):
    pass


ERRORS: dict[str, BaseException] = {
    "text": RuntimeError(ODD),
    "long": ValueError("x" * 9000),
    "surrogate": OSError("\udcff"),
    "silent": _SilentError(),
    "base": _Other("below"),
    "exit": SystemExit(ODD),
    "exit0": SystemExit(0),
    "stop": StopIteration(),
    "generator": GeneratorExit(),
    "memory": MemoryError(),
    "recursion": RecursionError("deep"),
    "keyerror": KeyError("\x00"),
    "import": ImportError("libGL.so.1"),
    "broken": BrokenPipeError(32, "pipe"),
}

SHOWN: dict[str, Any] = {
    "none": None,
    "text": "seen",
    "list": [0.0, 0.0, 0.0, 0.0],
    "ragged": [[0.0], 1.0],
    "short": np.zeros(3, np.float32),
    "deep": np.zeros((1, 4), np.float32),
    "nan": np.full(4, np.nan, np.float32),
    "inf": np.full(4, np.inf, np.float32),
    "huge": np.full(4, 1e300),
    "object": np.array([None] * 4, object),
    "complex": np.zeros(4, complex),
    "words": np.array(["a"] * 4),
    "dates": np.zeros(4, "M8[s]"),
    "dict": {"a": 1},
    "self": gymnasium,
    "bytes": b"abcd",
    "whole": 10**400,
}

RESULTS: dict[str, Any] = {
    "nothing": None,
    "four": (np.zeros(4, np.float32), 0.0, False, {}),
    "many": tuple(range(9)),
    "text": "abcde",
    "generator": (one for one in range(5)),
    "reward nan": (np.zeros(4, np.float32), float("nan"), False, False, {}),
    "reward text": (np.zeros(4, np.float32), "much", False, False, {}),
    "reward array": (np.zeros(4, np.float32), np.zeros(3), False, False, {}),
    "reward huge": (np.zeros(4, np.float32), 10**400, False, False, {}),
    "reward complex": (np.zeros(4, np.float32), 1j, False, False, {}),
    "over array": (np.zeros(4, np.float32), 0.0, np.zeros(3), False, {}),
    "over text": (np.zeros(4, np.float32), 0.0, "False", None, None),
    "over none": (np.zeros(4, np.float32), 0.0, None, None, None),
}

SPACES: dict[str, Any] = {
    "none": None,
    "text": "Box",
    "empty": lambda: spaces.Box(0, 1, (0,)),
    "wide": lambda: spaces.Box(0, 1, (4, 4)),
    "nan": lambda: spaces.Box(np.full(4, np.nan, "f4"), np.full(4, np.nan, "f4")),
    "turned": lambda: spaces.Box(-np.inf, np.inf, (4,), np.int8),
    "one": lambda: spaces.Discrete(1),
    "many": lambda: spaces.Discrete(2**62),
    "start": lambda: spaces.Discrete(2, start=-(2**62)),
    "dict": lambda: spaces.Dict({"a": spaces.Discrete(2)}),
    "tuple": lambda: spaces.Tuple([]),
    "text space": lambda: spaces.Text(5),
    "graph": lambda: spaces.Graph(spaces.Discrete(2), None),
    "sequence": lambda: spaces.Sequence(spaces.Discrete(2)),
    "binary": lambda: spaces.MultiBinary(2),
    "several": lambda: spaces.MultiDiscrete([2, 2]),
    "class": lambda: type("Own", (), {"n": "x", "shape": (None,), "dtype": "odd"})(),
}


class World(gymnasium.Env):  # type: ignore[misc]
    """An environment with four numbers and two actions, which ends after ten steps unless it is endless."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012 -- gymnasium's own form

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.plan: dict[str, Any] = json.loads(os.environ.get("ODD_WORLD", "{}"))
        self.observation_space: Any = spaces.Box(-np.inf, np.inf, (4,), np.float32)
        self.action_space: Any = spaces.Discrete(2)
        self.steps = 0
        for name in ("observation_space", "action_space"):
            if name in self.plan:
                made = SPACES[self.plan[name]]
                setattr(self, name, made() if callable(made) else made)
        self._odd("init", None)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return self._odd("reset", (np.zeros(4, np.float32), {}))

    def step(self, action: Any) -> Any:
        self.steps += 1
        over = self.steps >= 10 and not self.plan.get("endless")
        return self._odd("step", (np.full(4, self.steps, np.float32), 1.0, over, False, {}))

    def render(self) -> Any:
        return self._odd("render", np.zeros((8, 8, 3), np.uint8))

    def close(self) -> None:
        self._odd("close", None)

    def _odd(self, when: str, usual: Any) -> Any:
        if self.plan.get("when") != when or self.steps != self.plan.get("at", 0):
            return usual
        how, what = self.plan["how"], self.plan.get("what", "")
        if how == "raise":
            raise ERRORS[what]
        if how == "show" and isinstance(usual, tuple):
            return (SHOWN[what], *usual[1:])
        if how == "show":
            return SHOWN[what]
        if how == "return":
            return RESULTS[what]
        if how == "print":
            print(ODD * 300)  # noqa: T201
            print(ODD, file=sys.stderr)  # noqa: T201
        if how == "spaces":
            self.observation_space, self.action_space = spaces.Discrete(3), spaces.Box(0, 1, (7,))
        if how == "sleep":
            time.sleep(3600)
        if how == "chdir":
            os.chdir("/")
        if how == "closed":
            sys.stdout.close()
        return usual


gymnasium.register(id="Odd-v0", entry_point=World)
