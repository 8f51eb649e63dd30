"""Parallel episodes: one environment per seed, and one call of the policy for all of them at every step.

Environments are seeded separately, and calls have a fixed number of rows, so an episode does not depend on the other
episodes, on which of them have ended, or on the distribution over processes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from copy import copy
from typing import Any, NamedTuple

import numpy as np

from engine import Array, ConfigError, DataError, Engine, ModelError
from tecoinfer_modelzoo.text import one_line, typed_reason
from utils import stuck
from utils.datasets.episodes import RECORDED, Start
from utils.environments import NO_LIMIT, Actions, Observations, close_environment, facts_of, make_environment
from utils.outputs import LABELS, LOG_PROBABILITIES, LOGITS, PROBABILITIES
from utils.stuck import Overdue
from utils.tasks import Model, Options

KEY = "policy"
"""Metadata key: an object with the environment (``env``) and the name of the action output (``output``)."""


def environment_of(model: Model, options: Options) -> str:
    """Return the environment: ``--env``, or the stored one. Raises ConfigError if both are missing. Raises ModelError
    if the stored one has a module, whose code would be run."""
    if options.env:
        return str(options.env)
    stored = _notes(model).get("env")
    if not stored:
        raise ConfigError(f"{model.ckpt}: has no stored environment; pass --env, such as --env CartPole-v1")
    name = str(stored)
    if ":" in name:  # gymnasium would import the module; a model file must not select code
        raise ModelError(
            f"{model.ckpt}: metadata {KEY!r}: env {name!r} imports a module, which is not allowed in a model; if you "
            f"trust that module, pass --env {name}"
        )
    return name


def _notes(model: Model) -> dict[str, Any]:
    found = model.stored.json(KEY, {})
    if not isinstance(found, dict):
        raise ModelError(f"{model.ckpt}: metadata {KEY!r} is not a JSON object; export it again")
    return found


class Setting(NamedTuple):
    """Settings of a rollout; plain data."""

    env: str  # name of the environment
    limit: int  # steps after which an episode is aborted
    own_limit: int | None  # the environment's own limit, if any
    observations: Observations  # conversion to the policy's arrays
    actions: Actions  # conversion from the policy's arrays
    output: int  # index of the action output
    rows: int  # of every call
    dtype: np.dtype[Any]  # of the policy's input
    keep: bool  # whether episodes store their observations, for a recording
    kind: str = LOGITS  # of the output, one of KINDS

    @classmethod
    def of(cls, model: Model, options: Options) -> Setting:
        """Return the settings for a policy in its environment. Raises ConfigError if the environment is unknown or
        cannot be created. Raises ModelError if the policy does not fit it."""
        name = environment_of(model, options)
        if len(model.inputs) != 1:
            names = ", ".join(spec.name for spec in model.inputs)
            raise ModelError(f"{model.ckpt}: has inputs {names}; expected one, the observation")
        facts, where = facts_of(name), f"{model.ckpt} in {name}"
        spec, named = model.inputs[0], _notes(model).get("output")
        observations = Observations.of(facts.observations, spec, where)
        actions = Actions.of(facts.actions, where)
        limit = options.max_steps or facts.limit or NO_LIMIT
        output = _chosen(model, options, actions, named)
        kind = LABELS
        if output is None:
            output = actions.place(model.outputs, named, where)
            kind = model.form(options, output).kind
        rows = model.batch or options.batch_size
        keep = getattr(options, "save_predictions", None) is not None
        return cls(name, limit, facts.limit, observations, actions, output, rows, spec.dtype, keep, kind)


def _chosen(model: Model, options: Options, actions: Actions, named: str | None) -> int | None:
    """Return the index of an output with the numbers of the chosen actions; ``None`` if the model has none."""
    if not actions.sizes:
        return None
    for place, spec in enumerate(model.outputs):
        width = math.prod(size or len(actions.sizes) for size in spec.shape[1:])
        if named in (None, spec.name) and width == len(actions.sizes) and model.form(options, place).kind == LABELS:
            return place
    return None


class EpisodeResult(NamedTuple):
    """Result of an episode."""

    total: float  # its return; NaN if the policy outputs NaN
    steps: int  # number of steps
    ended: str  # terminated or truncated; empty if it did not end
    failure: str  # reason of a missing return, else empty
    actions: Array  # [steps, ...], the actions
    agreed: float = 0.0  # number of the recorded observations at which the policy chooses the recorded action
    recorded: int = 0
    seen: tuple[Array, Array] | None = None  # observations, [K, ...], and their steps; only if a recording is written
    first: Array | None = None  # output of the policy for the first observation, float32 [width]; None: not called


class CallWatchdog(Overdue):
    """Watchdog that reports a hanging call of an environment on stderr, once per call.

    Use as a context. Set ``doing`` to ``(what, seed, since)`` before a call, with ``since`` of
    :func:`time.perf_counter`, and to ``None`` after it.
    """

    def __init__(self, environment: str) -> None:
        super().__init__(self._call)
        self.doing: tuple[str, int, float] | None = None
        self._environment = one_line(environment)

    def _call(self) -> Iterator[tuple[float, str]]:
        doing = self.doing
        if doing is not None:
            what, seed, since = doing
            yield (
                since,
                f"the environment {self._environment} has been in {what} of seed {seed} for {stuck.PATIENCE:g} s and "
                "may hang; press Ctrl-C to end the run, and test the environment with this seed",
            )


class _Episode:
    """A running episode. An exception of its environment ends only this episode."""

    def __init__(self, setting: Setting, seed: int, watch: CallWatchdog) -> None:
        self._setting, self._seed, self._watch, self.failure, self.ended = setting, seed, watch, "", ""
        self.rewards, self.actions, self.seen = list[float](), list[Any](), list[Array]()
        self.first: Array | None = None
        self.row: Array = np.zeros(setting.observations.shape, setting.dtype)
        self.lost = False
        self._environment: Any = None
        watch.doing = "reset", seed, time.perf_counter()
        try:
            self._environment = make_environment(setting.env)
            self._show(self._environment.reset(seed=seed)[0])
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - an environment may raise anything
            self._fail(error, "reset")
        watch.doing = None

    @property
    def live(self) -> bool:
        return not (self.failure or self.ended or self.lost)

    def step(self, action: Any) -> None:
        """Take an action."""
        self.actions.append(copy(action))  # the environment may write into its argument
        self._watch.doing = f"step {len(self.actions)}", self._seed, time.perf_counter()
        try:
            self._step(action)
        finally:
            self._watch.doing = None

    def _step(self, action: Any) -> None:
        try:
            shown, reward, terminated, truncated, _ = self._environment.step(action)
            reward = float(reward)
            if not math.isfinite(reward):
                raise DataError(f"it returns a reward of {reward}")
            self.rewards.append(reward)
            if terminated or truncated:
                self.ended = "terminated" if terminated else "truncated"
                self.close()
                return
            self._show(shown)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - an environment may raise anything
            self._fail(error, f"step {len(self.actions)}")
            return
        if len(self.actions) >= self._setting.limit:
            self.failure = _endless(self._setting)
            self.close()

    def lose(self) -> None:
        """Stop the episode: the policy outputs NaN instead of an action."""
        self.lost = True
        self.close()

    def close(self) -> None:
        """Close the environment."""
        environment, self._environment = self._environment, None
        if environment is not None:
            close_environment(environment)

    def lane(self) -> EpisodeResult:
        """Return the result."""
        setting, total = self._setting, math.nan if self.lost else math.fsum(self.rewards)
        actions = np.array(self.actions, setting.actions.dtype).reshape(-1, *setting.actions.shape)
        seen = None
        if setting.keep and self.seen:
            places = np.unique(np.linspace(0, len(self.seen) - 1, min(RECORDED, len(self.seen))).astype(np.int64))
            seen = (np.stack([self.seen[place] for place in places]), places)
        return EpisodeResult(total, len(self.rewards), self.ended, self.failure, actions, seen=seen, first=self.first)

    def _show(self, observation: Any) -> None:
        self.row = self._setting.observations.row(observation, self._setting.dtype)
        if self._setting.keep:
            self.seen.append(np.array(observation))  # a copy: the environment may reuse the array

    def _fail(self, error: BaseException, where: str) -> None:
        said = str(error) if isinstance(error, DataError) else f"it raises {typed_reason(error)}"
        self.failure = f"the environment {self._setting.env} failed at {where}: {said}"
        self.close()


def _endless(setting: Setting) -> str:
    fix = "check the environment, or raise --max_steps"
    if setting.own_limit is not None and setting.limit < setting.own_limit:
        fix = f"the environment's limit is {setting.own_limit}: leave out --max_steps, or raise it"
    return f"the episode did not end within {setting.limit} steps; {fix}"


def roll(engine: Engine, setting: Setting, starts: Sequence[Start]) -> list[EpisodeResult]:
    """Run an episode for each start in parallel, until the last one has ended.

    Args:
        engine: the policy; its timeline gets spans ``environment`` and ``policy``, with steps as samples.
        setting: of :meth:`Setting.of`. starts: at most ``setting.rows``.
    """
    with CallWatchdog(setting.env) as watch:
        lanes = _rolled(engine, setting, starts, watch)
    return _compared(engine, setting, starts, lanes)


def _rolled(engine: Engine, setting: Setting, starts: Sequence[Start], watch: CallWatchdog) -> list[EpisodeResult]:
    begun = time.perf_counter()
    episodes = [_Episode(setting, start.seed, watch) for start in starts]
    engine.timeline.add("environment reset", begun, time.perf_counter(), len(episodes))
    rows: Array = np.zeros((setting.rows, *setting.observations.shape), setting.dtype)
    live = [place for place, episode in enumerate(episodes) if episode.live]
    if live:
        rows[:] = episodes[live[0]].row  # unused rows must be valid observations
    while live:
        for place in live:
            rows[place] = episodes[place].row
        begun = time.perf_counter()
        said, finite = _said(engine, setting, rows)
        chosen = setting.actions.chosen(said)
        middle = time.perf_counter()
        for place in live:
            if episodes[place].first is None:
                episodes[place].first = said[place].copy()
            if finite[place]:
                episodes[place].step(chosen[place])
            else:
                episodes[place].lose()
        engine.timeline.add("policy", begun, middle, len(live))
        engine.timeline.add("environment", middle, time.perf_counter(), len(live))
        live = [place for place in live if episodes[place].live]
    return [episode.lane() for episode in episodes]


def _said(engine: Engine, setting: Setting, rows: Array) -> tuple[Array, Array]:
    """Return the policy's output for each row, [N, width] with NaN as 0, and which rows are free of NaN."""
    outputs = engine(rows)
    found = np.asarray(outputs if isinstance(outputs, np.ndarray) else outputs[setting.output])
    said: Array = found.reshape(len(rows), -1).astype(np.float32, copy=False)
    if setting.kind == LABELS and setting.actions.sizes:
        said = setting.actions.rows_of(said)
    elif setting.kind in (PROBABILITIES, LOG_PROBABILITIES) and setting.actions.kind == "binary":
        said = said - np.float32(0.5 if setting.kind == PROBABILITIES else math.log(0.5))
    finite: Array = np.logical_not(np.isnan(said).any(axis=1))
    return said if finite.all() else np.nan_to_num(said), finite


def _compared(
    engine: Engine, setting: Setting, starts: Sequence[Start], lanes: Sequence[EpisodeResult]
) -> list[EpisodeResult]:
    """Run the policy on the recorded observations, and count equal actions."""
    parts = [(place, start) for place, start in enumerate(starts) if start.observations is not None]
    found = list(lanes)
    seen = [row for _, start in parts for row in _rows(setting, start)]
    if not seen:
        return found
    chosen, finite = list[Any](), list[bool]()
    for first in range(0, len(seen), setting.rows):
        rows = np.stack(seen[first : first + setting.rows])
        count = len(rows)
        rows = np.concatenate([rows, np.repeat(rows[:1], setting.rows - count, axis=0)])
        said, right = _said(engine, setting, rows)
        chosen += setting.actions.chosen(said)[:count]
        finite += right[:count].tolist()
    first = 0
    for place, start in parts:
        count = 0 if start.actions is None else len(start.actions)
        if not count:
            continue
        last = first + count
        agreed = setting.actions.alike(np.stack(chosen[first:last]), np.asarray(start.actions))
        total = float(np.where(finite[first:last], agreed, np.nan).sum())
        found[place] = lanes[place]._replace(agreed=total, recorded=count)
        first = last
    return found


def _rows(setting: Setting, start: Start) -> list[Array]:
    """Return the recorded observations of a start as the policy's rows.
    Raises ConfigError if observations or actions do not fit the environment."""
    observations, actions = np.asarray(start.observations), np.asarray(start.actions)
    if actions.shape[1:] != setting.actions.shape:
        raise ConfigError(
            f"--data_path: a recorded action has shape {list(actions.shape[1:])}, and one of {setting.env} "
            f"{list(setting.actions.shape)}; record it again"
        )
    odd = setting.actions.odd(actions)
    if odd is not None:
        raise ConfigError(
            f"--data_path: seed {start.seed} of the recording: {setting.env} has no action {odd}; record it again"
        )
    try:
        return [setting.observations.row(row, setting.dtype) for row in observations]
    except (DataError, TypeError, ValueError) as error:
        raise ConfigError(f"--data_path: seed {start.seed} of the recording: {error}; record it again") from error
