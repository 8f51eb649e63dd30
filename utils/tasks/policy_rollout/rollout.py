"""Episodes side by side: an environment per seed, one call of the policy for all of them at every step.

Each lane is an environment of its own, seeded alone, and the call always has the same number of rows: so an episode
does not depend on which others are beside it, which of them have ended, or how a run is shared out.
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
from utils.tasks.base import Options
from utils.tasks.model import Model

KEY = "policy"
"""Key of the metadata that names the environment (``env``) and the output that says the action (``output``)."""


def environment_of(model: Model, options: Options) -> str:
    """Return the environment: ``--env``, or the one that the model stores.

    Raises:
        ConfigError: neither names one. ModelError: the stored one names a module, whose code nobody asked for.
    """
    if options.env:
        return str(options.env)
    stored = _notes(model).get("env")
    if not stored:
        raise ConfigError(f"{model.ckpt}: stores no environment; pass --env, such as --env CartPole-v1")
    name = str(stored)
    if ":" in name:  # gymnasium would import the module, and a model file decides on no code that runs
        raise ModelError(
            f"{model.ckpt}: metadata {KEY!r}: env {name!r} names a module to import, which a model may not; "
            f"where you trust that module, pass --env {name}"
        )
    return name


def _notes(model: Model) -> dict[str, Any]:
    found = model.stored.json(KEY, {})
    if not isinstance(found, dict):
        raise ModelError(f"{model.ckpt}: metadata {KEY!r} is no JSON object; export it again")
    return found


class Setting(NamedTuple):
    """What a policy plays, and how; plain data.

    Attributes:
        env: name of the environment. limit: steps after which an episode is given up.
        own_limit: the environment's own, where it has one.
        observations, actions: how they become the policy's arrays, and come of them.
        output: place of the output that says the action. rows: of every call. dtype: of the policy's input.
        keep: episodes keep their observations, for a recording.
        kind: of the output, one of :data:`utils.outputs.KINDS`.
    """

    env: str
    limit: int
    own_limit: int | None
    observations: Observations
    actions: Actions
    output: int
    rows: int
    dtype: np.dtype[Any]
    keep: bool
    kind: str = LOGITS

    @classmethod
    def of(cls, model: Model, options: Options) -> Setting:
        """Look at the environment, once, and how the policy fits it.

        Raises:
            ConfigError: the environment is unknown or cannot be made. ModelError: the policy does not fit it.
        """
        name = environment_of(model, options)
        if len(model.inputs) != 1:
            names = ", ".join(spec.name for spec in model.inputs)
            raise ModelError(f"{model.ckpt}: has inputs {names}; a policy takes one, the observation")
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
    """Return the place of an output that holds the numbers of the chosen actions; ``None`` where there is none."""
    if not actions.sizes:
        return None
    for place, spec in enumerate(model.outputs):
        width = math.prod(size or len(actions.sizes) for size in spec.shape[1:])
        if named in (None, spec.name) and width == len(actions.sizes) and model.form(options, place).kind == LABELS:
            return place
    return None


class Lane(NamedTuple):
    """What became of an episode.

    Attributes:
        total: its return; NaN where the policy's output held NaN. steps: taken.
        ended: ``terminated`` or ``truncated``; empty where it did not end.
        failure: why there is no return; empty where there is one.
        actions: [steps, ...], what was done.
        agreed: at how many of the ``recorded`` observations the action is the recorded one.
        seen: the observations it acted on, [K, ...], and at which steps; only where a recording is to be written.
    """

    total: float
    steps: int
    ended: str
    failure: str
    actions: Array
    agreed: float = 0.0
    recorded: int = 0
    seen: tuple[Array, Array] | None = None


class Stuck(Overdue):
    """Reports on stderr, once for each call, one of an environment that has lasted for long.

    Use as a context. Whoever calls an environment sets ``doing`` before, to ``(what, seed, since)`` with ``since`` of
    :func:`time.perf_counter`, and to ``None`` behind it.

    Args:
        environment: its name.
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
                f"the environment {self._environment} has not come back from {what} of seed {seed} for "
                f"{stuck.PATIENCE:g} s, and may never; Ctrl-C ends the run; try the environment alone with this seed",
            )


class _Episode:
    """An episode under way. What its environment raises ends this one alone."""

    def __init__(self, setting: Setting, seed: int, watch: Stuck) -> None:
        self._setting, self._seed, self._watch, self.failure, self.ended = setting, seed, watch, "", ""
        self.rewards, self.actions, self.seen = list[float](), list[Any](), list[Array]()
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
        """Do an action."""
        self.actions.append(copy(action))  # the environment may write into the one it is given
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
                raise DataError(f"it gives a reward of {reward}")
            self.rewards.append(reward)
            if terminated or truncated:
                self._end("terminated" if terminated else "truncated")
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
        """Stop: the policy's output holds NaN, so there is no action."""
        self.lost = True
        self.close()

    def close(self) -> None:
        """Let the environment go."""
        environment, self._environment = self._environment, None
        if environment is not None:
            close_environment(environment)

    def lane(self) -> Lane:
        """Return what became of it."""
        setting, total = self._setting, math.nan if self.lost else math.fsum(self.rewards)
        actions = np.array(self.actions, setting.actions.dtype).reshape(-1, *setting.actions.shape)
        seen = None
        if setting.keep and self.seen:
            places = np.unique(np.linspace(0, len(self.seen) - 1, min(RECORDED, len(self.seen))).astype(np.int64))
            seen = (np.stack([self.seen[place] for place in places]), places)
        return Lane(total, len(self.rewards), self.ended, self.failure, actions, seen=seen)

    def _show(self, observation: Any) -> None:
        self.row = self._setting.observations.row(observation, self._setting.dtype)
        if self._setting.keep:
            self.seen.append(np.array(observation))  # a copy: the environment may show the same array again

    def _end(self, how: str) -> None:
        self.ended = how
        self.close()

    def _fail(self, error: BaseException, where: str) -> None:
        said = str(error) if isinstance(error, DataError) else f"it raises {typed_reason(error)}"
        self.failure = f"the environment {self._setting.env} failed at {where}: {said}"
        self.close()


def _endless(setting: Setting) -> str:
    fix = "check the environment, or raise --max_steps"
    if setting.own_limit is not None and setting.limit < setting.own_limit:
        fix = f"the environment's own limit is {setting.own_limit}: leave out --max_steps, or raise it"
    return f"the episode did not end within {setting.limit} steps; {fix}"


def roll(engine: Engine, setting: Setting, starts: Sequence[Start]) -> list[Lane]:
    """Run an episode for each start, all side by side, until the last one has ended.

    Args:
        engine: the policy; its timeline gets ``environment`` and ``policy``, how long both took for so many steps.
        setting: as :meth:`Setting.of` found it. starts: at most ``setting.rows``.
    """
    with Stuck(setting.env) as watch:
        lanes = _rolled(engine, setting, starts, watch)
    return _compared(engine, setting, starts, lanes)


def _rolled(engine: Engine, setting: Setting, starts: Sequence[Start], watch: Stuck) -> list[Lane]:
    begun = time.perf_counter()
    episodes = [_Episode(setting, start.seed, watch) for start in starts]
    engine.timeline.add("environment reset", begun, time.perf_counter(), len(episodes))
    rows: Array = np.zeros((setting.rows, *setting.observations.shape), setting.dtype)
    live = [place for place, episode in enumerate(episodes) if episode.live]
    if live:
        rows[:] = episodes[live[0]].row  # so that rows beside the episodes hold what a policy may be shown
    while live:
        for place in live:
            rows[place] = episodes[place].row
        begun = time.perf_counter()
        said, finite = _said(engine, setting, rows)
        chosen = setting.actions.chosen(said)
        middle = time.perf_counter()
        for place in live:
            if finite[place]:
                episodes[place].step(chosen[place])
            else:
                episodes[place].lose()
        engine.timeline.add("policy", begun, middle, len(live))
        engine.timeline.add("environment", middle, time.perf_counter(), len(live))
        live = [place for place in live if episodes[place].live]
    return [episode.lane() for episode in episodes]


def _said(engine: Engine, setting: Setting, rows: Array) -> tuple[Array, Array]:
    """Return what the policy says of each row, [N, width] with NaN as 0, and which rows had none."""
    outputs = engine(rows)
    found = np.asarray(outputs if isinstance(outputs, np.ndarray) else outputs[setting.output])
    said: Array = found.reshape(len(rows), -1).astype(np.float32, copy=False)
    if setting.kind == LABELS and setting.actions.sizes:
        said = setting.actions.rows_of(said)
    elif setting.kind in (PROBABILITIES, LOG_PROBABILITIES) and setting.actions.kind == "binary":
        said = said - np.float32(0.5 if setting.kind == PROBABILITIES else math.log(0.5))
    finite: Array = np.logical_not(np.isnan(said).any(axis=1))
    return said if finite.all() else np.nan_to_num(said), finite


def _compared(engine: Engine, setting: Setting, starts: Sequence[Start], lanes: Sequence[Lane]) -> list[Lane]:
    """Let the policy choose at the recorded observations, and count where it chooses what was recorded."""
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

    Raises:
        ConfigError: they are no observations and actions of the environment.
    """
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
