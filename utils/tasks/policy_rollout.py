"""Reinforcement learning: a policy plays an environment of gymnasium; the metric is the mean return of an episode.

A seed is a sample and a unit. Each seed has an environment of its own, whose first episode counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from engine import Array, ConfigError, Engine, Timeline
from utils.datasets.base import Batch, Dataset
from utils.datasets.episodes import Start, load_episodes
from utils.metrics.base import Metric
from utils.tasks.base import SCRIPTS, Artifact, Flag, Options, Saver, Task
from utils.tasks.model import Model
from utils.tasks.outputs import KIND_FLAG
from utils.tasks.prepared import NoAnswer, Prepared
from utils.tasks.rollout import Lane, Setting, environment_of, roll
from utils.tasks.templates.poles import TEMPLATE

EPISODES, UNRECORDED, FOREIGN = "episodes", "unrecorded_episodes", "foreign_episodes"


class Asked(NamedTuple):
    """What travels with an episode.

    Attributes:
        start: its seed, and what is recorded of it. measured: it counts for a metric.
        foreign: the recording is of another environment, so nothing is recorded of it.
    """

    start: Start
    measured: bool
    foreign: bool = False


class Lanes(list[Lane]):
    """What became of each episode of a batch."""

    @property
    def raw(self) -> Array:
        """Return and steps of each, float64 [N, 2]."""
        return np.array([(lane.total, lane.steps) for lane in self], np.float64).reshape(-1, 2)


def load(paths: Mapping[str, Path], options: Options) -> Dataset:
    """Return an episode per seed, from ``--seed`` on, with what a recording has of it."""
    return load_episodes(range(options.seed, options.seed + options.episodes), paths["data"] if paths else None)


def prepare(samples: Sequence[Start], model: Model, options: Options) -> Prepared:
    """Return the seeds, int64 [N, 1]; environments are made where the episodes are run."""
    seeds = np.array([[start.seed] for start in samples], np.int64)
    env, measured = environment_of(model, options), options.script == "valid"
    return Prepared(
        [seeds],
        [
            Asked(Start(start.seed), measured, True) if start.environment not in ("", env) else Asked(start, measured)
            for start in samples
        ],
    )


def setup(engines: Mapping[str, Engine], dataset: Dataset, options: Options) -> Setting:
    """Return what the policy plays, and how."""
    (engine,) = engines.values()
    return Setting.of(Model.of(engine), options)


def infer(engines: Mapping[str, Engine], arrays: Any, contexts: Sequence[Asked], state: Setting) -> Lanes:
    """Run an episode for each seed, side by side."""
    (engine,) = engines.values()
    starts = [asked.start for asked in contexts]
    parts = (starts[first : first + state.rows] for first in range(0, len(starts), state.rows))
    return Lanes(lane for part in parts for lane in roll(engine, state, part))


def decode(outputs: Sequence[Lane], contexts: Sequence[Asked], model: Model, options: Options) -> list[Lane | NoAnswer]:
    """Return the episodes; one that failed or never ended has no answer."""
    return [NoAnswer(lane.failure) if lane.failure else lane for lane in outputs]


def metric(options: Options, dataset: Dataset, model: Model) -> Metric:
    """Return the metric of returns."""
    from utils.metrics.returns import MeanReturn

    return MeanReturn()


def figures(timeline: Timeline, samples: int) -> Mapping[str, float]:
    """Return how many steps the environments and the policy do in a second, apart.

    A step is one of one episode. Both are by the seconds of the threads that did them.
    """
    found = {"steps": float(timeline.samples("environment"))}
    for stage in ("environment", "policy"):
        if timeline.seconds(stage):
            found[f"{stage}_steps_per_s"] = timeline.samples(stage) / timeline.seconds(stage)
    return found if found["steps"] else {}


def counted(contexts: Sequence[Asked] | None) -> Mapping[str, int]:
    """Count the episodes of an evaluation, those that a recording lacks, and those whose recording is of another."""
    asked = list(contexts or ())
    starts = [one.start for one in asked]
    found = {
        EPISODES: sum(one.measured for one in asked),
        UNRECORDED: sum(start.actions is not None and not len(start.actions) for start in starts),
        FOREIGN: sum(one.foreign for one in asked),
    }
    return {name: count for name, count in found.items() if count}


def remarks(counts: Mapping[str, int], samples: int) -> list[str]:
    """Say where a mean is of too few episodes, or the recording of fewer than there are."""
    from utils.metrics.returns import ENOUGH

    said = []
    if counts.get(EPISODES) and samples < ENOUGH:
        said.append(f"a mean of {samples} episodes says little: at least {ENOUGH} are usual (--episodes {ENOUGH})")
    if counts.get(UNRECORDED):
        said.append(f"the recording has nothing of {counts[UNRECORDED]} seeds: no actions are compared there")
    if counts.get(FOREIGN):
        said.append("the recording is of another environment than the one played: no actions are compared")
    return said


def show(sample: Start, prediction: Lane, model: Model, options: Options) -> Artifact:
    """Return the return; saving draws the episode."""
    how = {"terminated": "terminated", "truncated": "cut off by the environment's time limit"}[prediction.ended]
    text = f"return {prediction.total:g} in {prediction.steps} steps, {how}"
    answer = {"return": prediction.total, "steps": prediction.steps, "ended": prediction.ended}
    if prediction.recorded:
        answer |= {"action_agreement": prediction.agreed / prediction.recorded, "recorded": prediction.recorded}
        text += f"; {prediction.agreed:g} of {prediction.recorded} recorded actions alike"
    return Artifact(text, answer, partial(_save, sample.seed, prediction, text, model, options))


def _save(seed: int, lane: Lane, text: str, model: Model, options: Options, folder: Path) -> Path:
    from utils.tasks.policy_film import save_film

    return save_film(environment_of(model, options), seed, lane, text, options.film, folder)


def summary(predictions: Sequence[Lane], model: Model, options: Options) -> str:
    """Say what the episodes' returns are together."""
    totals = np.array([lane.total for lane in predictions])
    return f"mean return {totals.mean():.6g}, from {totals.min():g} to {totals.max():g}"


class Recorder:
    """Writes at which observations the policy chose which action."""

    def __init__(self, path: Path, environment: str) -> None:
        self._path, self._environment = path, environment
        self._lanes = list[tuple[int, Lane]]()

    def see(self, batch: Batch, predictions: Sequence[Lane]) -> None:
        """Take in a batch."""
        self._lanes += [(start.seed, lane) for start, lane in zip(batch.samples, predictions, strict=True) if lane.seen]

    def close(self) -> None:
        """Write the recording."""
        from utils.datasets.episodes import write_recording

        write_recording(self._path, recording_of(self._environment, self._lanes))


def recording_of(environment: str, lanes: Sequence[tuple[int, Lane]]) -> Any:
    """Return the recording of episodes, by their seeds.

    Raises:
        ConfigError: none of them kept what it saw.
    """
    from utils.datasets.episodes import Recording

    kept = [(seed, lane, *lane.seen) for seed, lane in lanes if lane.seen is not None]
    if not kept:
        raise ConfigError("--save_predictions: no episode ended, so there is nothing to record")
    return Recording(
        environment,
        np.concatenate([np.full(len(places), seed, np.int64) for seed, _, _, places in kept]),
        np.concatenate([places for _, _, _, places in kept]),
        np.concatenate([seen for _, _, seen, _ in kept]),
        np.concatenate([lane.actions[places] for _, lane, _, places in kept]),
    )


def saver(path: Path, dataset: Dataset, model: Model, options: Options) -> Saver:
    """Return what writes the recording."""
    return Recorder(path, environment_of(model, options))


def check(options: Options) -> None:
    """Refuse numbers that cannot be.

    Raises:
        ConfigError: names the flag.
    """
    least = {"episodes": 1, "seed": 0, "max_steps": 1}
    for key, smallest in least.items():
        value = getattr(options, key)
        if value is not None and value < smallest:
            raise ConfigError(f"--{key} {value} must be at least {smallest}")
    if options.seed + options.episodes > 2**63:
        raise ConfigError(f"--seed {options.seed} with --episodes {options.episodes} passes {2**63 - 1}, the last seed")


FLAGS = (
    Flag("--env", "environment of gymnasium, or MODULE:NAME of your own; left out: the one the model stores"),
    KIND_FLAG,
    Flag("--episodes", "how many to run, each with a seed of its own", 100, int),
    Flag("--seed", "seed of the first episode; the others have the numbers after it", 1000, int),
    Flag(
        "--max_steps",
        "steps after which an episode that has not ended is given up; left out: the environment's own limit, or 10000",
        None,
        int,
    ),
    Flag(
        "--film",
        "what --save draws: a strip, or a GIF",
        "strip",
        choices=("strip", "gif"),
        scripts=SCRIPTS[1:],
    ),
)

POLICY_ROLLOUT = Task(
    name="policy_rollout",
    domain="reinforcement",
    load=load,
    prepare=prepare,
    decode=decode,
    metric=metric,
    show=show,
    setup=setup,
    infer=infer,
    figures=figures,
    summary=summary,
    counted=counted,
    remarks=remarks,
    check=check,
    flags=FLAGS,
    watched=False,
    advice={"engine": "see which is slower, environment or policy (figures); more episodes side by side: --batch_size"},
    template=TEMPLATE,
    first=True,
    data_help="nothing: episodes are seeds; or a recording (.npz) to compare actions with",
    saver=saver,
    saves="a recording: observations and the action chosen at each (.npz)",
)
"""Environments are made in ``infer``, one per seed, and stepped side by side with one call of the policy per step."""
