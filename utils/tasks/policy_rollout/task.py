"""Reinforcement learning: rollouts of a policy in a gymnasium environment; the metric is the mean return.

A seed is a sample and a unit. Each seed has a separate environment, whose first episode is run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from engine import Array, ConfigError, Engine, Timeline
from utils.datasets.base import Batch, Dataset
from utils.datasets.episodes import Start, load_episodes
from utils.metrics.base import Metric
from utils.tasks import SCRIPTS, Flag, NoAnswer, Prepared, Rendering, Task, at_least
from utils.tasks.common.outputs import KIND_FLAG
from utils.tasks.policy_rollout.rollout import EpisodeResult, Setting, environment_of, roll
from utils.tasks.templates import sample_tables

EPISODES, UNRECORDED, FOREIGN = "episodes", "unrecorded_episodes", "foreign_episodes"


class Asked(NamedTuple):
    """Context of an episode."""

    start: Start  # its seed and recording
    measured: bool  # whether it counts for the metric
    foreign: bool = False  # whether the recording is of another environment, and therefore ignored


class EpisodeResults(list[EpisodeResult]):
    """Results of a batch of episodes."""

    @property
    def raw(self) -> list[Array]:
        """Return and steps of each, float64 [N, 2], and the policy's outputs for the first observations, [N, width].
        NaN in a row of an episode that did not begin."""
        width = max((lane.first.size for lane in self if lane.first is not None), default=0)
        empty: Array = np.full(width, np.nan, np.float32)
        first = [empty if lane.first is None else lane.first for lane in self]
        totals = np.array([(lane.total, lane.steps) for lane in self], np.float64).reshape(-1, 2)
        return [totals, np.reshape(first, (-1, width))] if width else [totals]


class PolicyRollout(Task):
    """Rollouts of one environment per seed, stepped in parallel with one policy call per step."""

    name, domain, domain_default, template = "policy_rollout", "reinforcement", True, sample_tables.POLICY_ROLLOUT
    data_help = "not needed: episodes are seeds; or a recording (.npz) to compare actions with"
    writes = "a recording: observations and the action chosen at each (.npz)"
    advice: ClassVar[Mapping[str, str]] = {
        "engine": "check whether environment or policy is slower (figures); more parallel episodes: --batch_size"
    }
    flags = (
        Flag("--env", "environment of gymnasium, or MODULE:NAME of your own; left out: the stored one"),
        KIND_FLAG,
        Flag("--episodes", "number of episodes, each with its own seed", 100, int),
        Flag("--seed", "seed of the first episode; the others have the following numbers", 1000, int),
        Flag("--max_steps", "steps after which an episode is aborted; left out: the environment's limit, or 10000",
             None, int),
        Flag("--film", "drawing of --save: a strip, or a GIF", "strip", choices=("strip", "gif"), scripts=SCRIPTS[1:]),
    )  # fmt: skip
    state: Setting

    def check(self) -> None:
        """Check ``--episodes``, ``--seed`` and ``--max_steps``."""
        at_least(self.options, episodes=1, seed=0, max_steps=1)
        seed, episodes = self.options.seed, self.options.episodes
        if seed + episodes > 2**63:
            raise ConfigError(f"--seed {seed} with --episodes {episodes} passes {2**63 - 1}, the last seed")

    def load(self, paths: Mapping[str, Path]) -> Dataset:
        """Return an episode per seed, starting at ``--seed``, with its part of the recording."""
        first = self.options.seed
        return load_episodes(range(first, first + self.options.episodes), paths.get("data"))

    def setup(self, engines: Mapping[str, Engine], dataset: Dataset) -> Setting:
        """Return the settings of the rollout."""
        return Setting.of(self.model, self.options)

    def prepare(self, samples: Sequence[Start]) -> Prepared:
        """Return the seeds, int64 [N, 1]; environments are created in ``infer``."""
        seeds = np.array([[start.seed] for start in samples], np.int64)
        env, measured = environment_of(self.model, self.options), self.options.script == "valid"
        foreign = [start.environment not in ("", env) for start in samples]
        own = [Start(start.seed) if other else start for start, other in zip(samples, foreign, strict=True)]
        return Prepared([seeds], [Asked(start, measured, other) for start, other in zip(own, foreign, strict=True)])

    def infer(self, engines: Mapping[str, Engine], arrays: Any, contexts: Sequence[Asked]) -> EpisodeResults:
        """Run the episodes of all seeds in parallel."""
        (engine,), setting = engines.values(), self.state
        starts = [asked.start for asked in contexts]
        parts = (starts[first : first + setting.rows] for first in range(0, len(starts), setting.rows))
        return EpisodeResults(lane for part in parts for lane in roll(engine, setting, part))

    def decode(self, outputs: Sequence[EpisodeResult], contexts: Any) -> list[EpisodeResult | NoAnswer]:
        """Return the episodes; :class:`NoAnswer` for an episode that failed or did not end."""
        return [NoAnswer(lane.failure) if lane.failure else lane for lane in outputs]

    def metric(self, dataset: Dataset) -> Metric:
        """Return the metric of record."""
        from utils.metrics.returns import MeanReturn

        return MeanReturn()

    def show(self, sample: Start, prediction: EpisodeResult) -> Rendering:
        """Return the return; saving draws the episode."""
        how = {"terminated": "terminated", "truncated": "cut off by the environment's time limit"}[prediction.ended]
        text = f"return {prediction.total:g} in {prediction.steps} steps, {how}"
        answer = {"return": prediction.total, "steps": prediction.steps, "ended": prediction.ended}
        if prediction.recorded:
            answer |= {"action_agreement": prediction.agreed / prediction.recorded, "recorded": prediction.recorded}
            text += f"; {prediction.agreed:g} of {prediction.recorded} recorded actions alike"
        return Rendering(text, answer, partial(self._save, sample.seed, prediction, text))

    def _save(self, seed: int, lane: EpisodeResult, text: str, folder: Path) -> Path:
        from utils.tasks.policy_rollout.film import save_film

        return save_film(environment_of(self.model, self.options), seed, lane, text, self.options.film, folder)

    def summary(self, predictions: Sequence[EpisodeResult]) -> str:
        """Return mean and range of the episodes' returns."""
        totals = np.array([lane.total for lane in predictions])
        return f"mean return {totals.mean():.6g}, from {totals.min():g} to {totals.max():g}"

    def extra_figures(self, timeline: Timeline, samples: int) -> Mapping[str, float]:
        """Return the steps per second of the environments and of the policy.
        A step is one step of one episode; seconds are those of the executing threads."""
        found = {"steps": float(timeline.samples("environment"))}
        for stage in ("environment", "policy"):
            if timeline.seconds(stage):
                found[f"{stage}_steps_per_s"] = timeline.samples(stage) / timeline.seconds(stage)
        return found if found["steps"] else {}

    def warning_counts(self, contexts: Sequence[Asked] | None) -> Mapping[str, int]:
        """Count measured episodes, those without a recording, and those with a recording of another environment."""
        asked = list(contexts or ())
        starts = [one.start for one in asked]
        found = {
            EPISODES: sum(one.measured for one in asked),
            UNRECORDED: sum(start.actions is not None and not len(start.actions) for start in starts),
            FOREIGN: sum(one.foreign for one in asked),
        }
        return {name: count for name, count in found.items() if count}

    def format_warnings(self, counts: Mapping[str, int], samples: int) -> list[str]:
        """Return lines about too few episodes, and missing or foreign recordings."""
        from utils.metrics.returns import ENOUGH

        said = []
        if counts.get(EPISODES) and samples < ENOUGH:
            said.append(f"a mean of {samples} episodes is unreliable: use at least {ENOUGH} (--episodes {ENOUGH})")
        if counts.get(UNRECORDED):
            said.append(f"the recording lacks {counts[UNRECORDED]} seeds: their actions are not compared")
        if counts.get(FOREIGN):
            said.append("the recording is of another environment: actions are not compared")
        return said

    def prediction_writer(self, path: Path, dataset: Dataset) -> Recorder:
        """Return a writer of the recording."""
        return Recorder(path, environment_of(self.model, self.options))


class Recorder:
    """Writer of a recording: observations and the chosen actions."""

    def __init__(self, path: Path, environment: str) -> None:
        self._path, self._environment = path, environment
        self._kept = list[tuple[Array, Array, Array, Array]]()

    def see(self, batch: Batch, predictions: Sequence[EpisodeResult]) -> None:
        """Add a batch."""
        for start, lane in zip(batch.samples, predictions, strict=True):
            if lane.seen is not None:
                seen, places = lane.seen
                self._kept.append((np.full(len(places), start.seed, np.int64), places, seen, lane.actions[places]))

    def close(self) -> None:
        """Write the recording. Raises ConfigError if the observations of all episodes are missing."""
        from utils.datasets.episodes import Recording, write_recording

        if not self._kept:
            raise ConfigError("--save_predictions: no episode ended, so the recording would be empty")
        seeds, steps, seen, actions = (np.concatenate(column) for column in zip(*self._kept, strict=True))
        write_recording(self._path, Recording(self._environment, seeds, steps, seen, actions))
