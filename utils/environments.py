"""Environments of gymnasium: create them by name, and convert observations and actions from and to arrays.

The only file that imports gymnasium, an optional dependency.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import numpy as np

from engine import Array, ConfigError, DataError, ModelError, TecoInferError, TensorSpec
from tecoinfer_modelzoo.extra import extra
from tecoinfer_modelzoo.text import reason_of, typed_reason

NO_LIMIT = 10_000
"""Steps after which an episode is ended if neither the environment nor the user sets a limit."""


@contextmanager
def of_environment(refusal: Callable[[str], TecoInferError]) -> Iterator[None]:
    """Replace any exception of an environment, also ``SystemExit``, by ``refusal(reason)``; Ctrl-C is not replaced."""
    try:
        yield
    except (KeyboardInterrupt, TecoInferError):
        raise
    except BaseException as error:
        raise refusal(typed_reason(error)) from error


def gymnasium() -> Any:
    """Return the package gymnasium.

    Raises:
        ConfigError: it is not installed; the message has the command.
    """
    # Set before an environment imports pygame: no greeting on stdout, and no window.
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    with extra("an environment of reinforcement learning", "gym"):
        import gymnasium as found
    found.logger.min_level = found.logger.ERROR  # warnings would be repeated for every environment
    return found


def make_environment(name: str, *, drawn: bool = False) -> Any:
    """Create an environment.

    Args:
        name: in gymnasium, such as ``CartPole-v1``; ``module:Name-v0`` imports the module first.
        drawn: its ``render()`` returns images.

    Returns:
        A ``gymnasium.Env``.

    Raises:
        ConfigError: it is unknown, or cannot be created.
    """
    gym = gymnasium()
    with of_environment(
        lambda why: ConfigError(f"--env {name}: the environment cannot be made ({why}); check that it works alone")
    ):
        try:
            return gym.make(name, disable_env_checker=True, **({"render_mode": "rgb_array"} if drawn else {}))
        except gym.error.UnregisteredEnv as error:
            raise ConfigError(
                f"--env {name}: gymnasium knows no such environment ({reason_of(error)}); one of your own is "
                "MODULE:NAME-v0, and its module registers it"
            ) from error


def close_environment(environment: Any) -> None:
    """Close an environment; its errors are ignored."""
    with suppress(TecoInferError), of_environment(ConfigError):
        environment.close()


class Facts(NamedTuple):
    """Properties of an environment.

    Attributes:
        observations, actions: its spaces. limit: steps after which it ends an episode; ``None``: no limit.
        drawn: it can render images.
    """

    observations: Any
    actions: Any
    limit: int | None
    drawn: bool


def facts_of(name: str) -> Facts:
    """Create an environment, read its properties, and close it.

    Raises:
        ConfigError: it cannot be created, or lacks a space.
    """
    environment = make_environment(name)
    try:
        with of_environment(
            lambda why: ConfigError(
                f"--env {name}: the environment lacks its observation or action space ({why}); give it an "
                "observation_space and an action_space"
            )
        ):
            limit = getattr(getattr(environment, "spec", None), "max_episode_steps", None)
            drawn = "rgb_array" in (environment.metadata.get("render_modes") or ())
            return Facts(environment.observation_space, environment.action_space, int(limit) if limit else None, drawn)
    finally:
        close_environment(environment)


class Observations(NamedTuple):
    """Converts an environment's observations to rows of a policy's input.

    Attributes:
        shape: of a row. start: the smallest discrete observation; ``None`` for arrays.
        one_hot: discrete observations become one-hot rows. choices: number of discrete observations.
    """

    shape: tuple[int, ...]
    start: int | None = None
    choices: int = 0
    one_hot: bool = False

    @classmethod
    def of(cls, space: Any, spec: TensorSpec, where: str) -> Observations:
        """Return the conversion of an environment's observations to a policy's input.

        Args:
            space: the environment's ``observation_space``. spec: the input. where: policy and environment, for errors.

        Raises:
            ModelError: shapes or dtypes do not fit.
        """
        spaces = gymnasium().spaces
        row = _row(spec)
        if isinstance(space, spaces.Discrete):
            one_hot = spec.dtype.kind == "f"
            count = int(space.n)
            found = cls((count,) if one_hot else tuple(1 for _ in row), int(space.start), count, one_hot)
        elif isinstance(space, (spaces.Box, spaces.MultiDiscrete, spaces.MultiBinary)):
            found = cls(tuple(int(size) for size in space.shape))
        else:
            raise ModelError(
                f"{where}: observations of kind {type(space).__name__} are not arrays; wrap the environment in "
                "gymnasium.wrappers.FlattenObservation"
            )
        if len(row) != len(found.shape) or any(a not in (None, b) for a, b in zip(row, found.shape, strict=True)):
            raise ModelError(
                f"{where}: an observation has shape {list(found.shape)}, and the policy's input {spec.name} takes "
                f"{list(spec.shape)}; pass another --env, or a policy that was trained on this one"
            )
        if np.issubdtype(space.dtype, np.floating) and spec.dtype.kind != "f":
            raise ModelError(
                f"{where}: an observation is of {space.dtype}, and the policy's input {spec.name} takes {spec.dtype}, "
                "which would cut off its digits; pass another --env, or a policy that was trained on this one"
            )
        return found

    def row(self, observation: Any, dtype: np.dtype[Any]) -> Array:
        """Return an observation as a row, of the policy's dtype.

        Raises:
            DataError: it is not in its space, or holds NaN.
        """
        if self.start is not None:
            place = int(observation) - self.start
            if not 0 <= place < self.choices:
                raise DataError(f"it shows {observation}, and its space has {self.choices} observations")
            if not self.one_hot:
                return np.full(self.shape, place, dtype)
            found: Array = np.zeros(self.shape, dtype)
            found[place] = 1
            return found
        array = np.asarray(observation)
        if array.shape != self.shape:
            raise DataError(f"it shows an observation of shape {list(array.shape)}, and its space says {self.shape}")
        if array.dtype.kind == "f" and np.isnan(array).any():
            raise DataError("it shows an observation with NaN")
        with np.errstate(over="ignore"):  # values beyond float16 become infinite
            return array.astype(dtype)


def _row(spec: TensorSpec) -> tuple[int | None, ...]:
    """Return the shape of a sample in an input."""
    axis = 0 if spec.batch_axis is None else spec.batch_axis
    return tuple(size if isinstance(size, int) else None for place, size in enumerate(spec.shape) if place != axis)


class Actions(NamedTuple):
    """Converts rows of a policy's output to actions.

    Attributes:
        kind: ``discrete``, ``several`` (discrete), ``binary`` or ``continuous``.
        width: values per row. shape: of an action.
        sizes: number of choices of each discrete action. start: number of each first choice.
        low, high: bounds of continuous actions. dtype: of an action.
    """

    kind: str
    width: int
    shape: tuple[int, ...]
    sizes: tuple[int, ...]
    start: Array
    low: Array
    high: Array
    dtype: np.dtype[Any]

    @classmethod
    def of(cls, space: Any, where: str) -> Actions:
        """Return the conversion of a policy's output to actions of a space.

        Raises:
            ModelError: the kind of space is not supported.
        """
        spaces, none = gymnasium().spaces, np.zeros(0)
        if isinstance(space, spaces.Discrete):
            size = int(space.n)
            return cls("discrete", size, (), (size,), np.array([space.start]), none, none, np.dtype(np.int64))
        if isinstance(space, spaces.MultiDiscrete) and len(space.shape) == 1:
            sizes = tuple(int(size) for size in space.nvec)
            return cls("several", sum(sizes), space.shape, sizes, space.start, none, none, space.dtype)
        if isinstance(space, spaces.MultiBinary):
            return cls("binary", math.prod(space.shape), space.shape, (), none, none, none, space.dtype)
        if isinstance(space, spaces.Box):
            return cls("continuous", math.prod(space.shape), space.shape, (), none, space.low, space.high, space.dtype)
        raise ModelError(f"{where}: actions of kind {type(space).__name__} are not supported")

    def chosen(self, rows: Array) -> list[Any]:
        """Return the action of each row: the choice with the largest score, or the values clipped to the bounds.

        Args:
            rows: N x ``width``, finite.
        """
        if self.kind == "discrete":
            return [int(best) + int(self.start[0]) for best in rows.argmax(axis=1)]
        if self.kind == "several":
            parts = np.split(rows, np.cumsum(self.sizes)[:-1], axis=1)
            best = np.stack([part.argmax(axis=1) for part in parts], axis=1) + self.start
            return list(best.astype(self.dtype))
        shaped = rows.reshape(len(rows), *self.shape)
        if self.kind == "binary":
            return list((shaped > 0).astype(self.dtype))
        return list(np.clip(shaped.astype(self.dtype), self.low, self.high))

    def rows_of(self, numbers: Array) -> Array:
        """Return one-hot rows of choices: float32 [N, ``width``].

        Args:
            numbers: choices counted from 0, N x number of discrete actions; a row with NaN gives a row of NaN.

        Raises:
            ModelError: a number is not a choice.
        """
        lost: Array = np.asarray(np.isnan(numbers).any(axis=1))
        choices = np.where(lost[:, None], 0, numbers)
        wrong = (choices < 0) | (choices >= np.array(self.sizes)) | (choices != np.floor(choices))
        if wrong.any():
            raise ModelError(
                f"the policy chooses action {choices[wrong][0]:g}, and there are {' and '.join(map(str, self.sizes))}; "
                "pass another --env, or a policy that was trained on this one"
            )
        found: Array = np.zeros((len(numbers), self.width), np.float32)
        firsts = np.cumsum([0, *self.sizes[:-1]])
        found[np.arange(len(numbers))[:, None], choices.astype(np.int64) + firsts] = 1
        found[lost] = np.nan
        return found

    def odd(self, actions: Array) -> Any:
        """Return the first of N actions that is not a choice of the space; ``None``: all are, or are continuous."""
        if self.kind == "continuous" or not len(actions):
            return None
        sizes = np.array(self.sizes) if self.sizes else np.full(1, 2)
        start = self.start if self.sizes else np.zeros(1)
        flat = actions.reshape(len(actions), -1)
        wrong = ((flat < start) | (flat >= start + sizes) | (flat != np.floor(flat))).any(axis=1)
        return actions[wrong][0].tolist() if wrong.any() else None

    def alike(self, one: Array, other: Array) -> Array:
        """Return the agreement of actions in 0..1, float64 [N].

        For several discrete actions, the share of equal ones. For continuous ones, 1 minus distance over range, the
        mean over the values of an action; values without a finite range must be equal.

        Args:
            one, other: N actions each.
        """
        first, second = (np.asarray(actions).reshape(len(actions), -1) for actions in (one, other))
        same: Array = (first == second).astype(np.float64)
        if self.kind == "continuous":
            span = (self.high.astype(np.float64) - self.low).reshape(-1)
            bounded = np.isfinite(span) & (span > 0)
            away = np.abs(first.astype(np.float64) - second) / np.where(bounded, span, 1)
            same = np.where(bounded, np.clip(1 - away, 0, 1), same)
        return same.mean(axis=1) if same.shape[1] else np.ones(len(same))

    def place(self, outputs: Sequence[TensorSpec], named: str | None, where: str) -> int:
        """Return the index of the output with the action: the named one, or the first of the right width.

        Raises:
            ModelError: the output does not exist.
        """
        listed = ", ".join(f"{spec.name} {list(spec.shape)}" for spec in outputs)
        if named is not None and named not in [spec.name for spec in outputs]:
            raise ModelError(
                f"{where}: the action is output {named!r} by the metadata, and the policy has no such output "
                f"({listed}); export it again"
            )
        for place, spec in enumerate(outputs):
            row = _row(spec)
            if named in (None, spec.name) and (math.prod(size or self.width for size in row) == self.width):
                return place
        what = {"discrete": f"one of {self.width} actions", "continuous": f"{self.width} continuous values"}
        wanted = what.get(self.kind, f"an action of {self.width} values")
        raise ModelError(
            f"{where}: the environment takes {wanted}, and no output of the policy has {self.width} values for a "
            f"sample ({listed}); pass another --env, or a policy that was trained on this one"
        )
