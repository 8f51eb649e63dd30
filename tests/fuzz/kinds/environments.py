"""Invalid reinforcement learning environments, their names, and recorded episodes."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

from tests.fuzz.case import ROOT, Case, Outcome
from tests.fuzz.makers.arrays_of import nothing_ran, spoil_arrays, write_npz
from tests.fuzz.makers.bytes_of import mutated
from tests.fuzz.makers.worlds import ERRORS, RESULTS, SHOWN, SPACES
from tests.fuzz.names import NAMES, not_a_file_reason, odd_name

WARM = (
    *("numpy", "onnx", "onnxruntime", "engine", "engine.sdaa.engine", "utils.pipeline.cli", "utils.pipeline.valid"),
    *("utils.tasks.policy_rollout.task", "utils.pipeline.answers", "gymnasium", "gymnasium.envs.classic_control"),
)

FOLDER = ROOT / "example" / "reinforcement" / "ppo_cartpole"
WORLD = "tests.fuzz.makers.worlds:Odd-v0"


def make(rng: random.Random, folder: Path, number: int) -> Case:
    makers = (_world, _recording, _world, _name, _world, _recording, _same, _spaces, _stored, _hang)
    return makers[number % len(makers)](rng, folder)


def _script(rng: random.Random, *words: str, target: str | None = None) -> tuple[str, ...]:
    script = rng.choice(("valid", "valid", "multi_batch", "single_batch"))
    words = (str(FOLDER / f"example_{script}.py"), "--target", target or rng.choice(("onnx", "onnx", "cpu")), *words)
    if script != "single_batch":
        words += ("--episodes", str(rng.choice((1, 3, 7))))
    return words


def _world(rng: random.Random, folder: Path) -> Case:
    how = rng.choice(("raise", "raise", "show", "show", "return", "return", "print", "spaces", "endless", "chdir"))
    what = rng.choice(list({"raise": ERRORS, "show": SHOWN, "return": RESULTS}.get(how, {"": 0})))
    when = rng.choice(("init", "reset", "step", "step", "step", "close", "render"))
    plan: dict[str, Any] = {"when": when, "how": how, "what": what, "at": 3 if when in ("step", "close") else 0}
    words = ["--env", WORLD]
    if how == "endless":
        plan = {"endless": True}
        words += ["--max_steps", rng.choice(("1", "50", "2000"))] if rng.random() < 0.8 else []
    if when == "render" or rng.random() < 0.1:
        words += ["--save", str(folder / "drawn")]
        script = (
            str(FOLDER / "example_single_batch.py"),
            *words,
            "--target",
            "onnx",
            "--film",
            rng.choice(("gif", "strip")),
        )
    else:
        script = _script(rng, *words)
    return Case(script, f"a world with {plan}", env={"ODD_WORLD": json.dumps(plan)})


def _spaces(rng: random.Random, folder: Path) -> Case:
    plan = {rng.choice(("observation_space", "action_space")): rng.choice(list(SPACES))}
    return Case(_script(rng, "--env", WORLD), f"a world with {plan}", env={"ODD_WORLD": json.dumps(plan)})


def _hang(rng: random.Random, folder: Path) -> Case:
    """A call that never returns; Ctrl-C ends it."""
    plan = {"when": rng.choice(("init", "reset", "step")), "how": "sleep", "at": 0}
    plan["at"] = 2 if plan["when"] == "step" else 0

    def judge(outcome: Outcome) -> str | None:
        return None if outcome.code == 130 else f"Ctrl-C gives exit code {outcome.code}"

    env = {"ODD_WORLD": json.dumps(plan)}
    return Case(_script(rng, "--env", WORLD), f"a world with {plan}", judge, env=env, interrupts=(3.0,))


ODD_NAMES = (
    *(
        "",
        " ",
        ":",
        "::",
        "a:b:c",
        "os:system-v0",
        "../x:Y-v0",
        "CartPole-v99",
        "CartPole",
        "CartPole-v",
        "CartPole-v-1",
    ),
    *(
        "CartPole-v1\n",
        "tests.fuzz.makers.worlds:None-v0",
        "tests.fuzz.makers.worlds:",
        "this:Odd-v0",
        "antigravityy:X-v0",
        "phys2d/CartPole-v1",
    ),
    *(
        "x" * 5000,
        "a/b/c/d-v0",
        "CartPole-v" + "9" * 5000,
        "tabular/CliffWalking-v0",
        "ALE/Pong-v5",
        "GymV21Environment-v0",
    ),
    *(
        "Blackjack-v1",
        "FrozenLake-v1",
        "Taxi-v3",
        "MountainCar-v0",
        "Pendulum-v1",
        "Ant-v5",
        "LunarLander-v3",
        "json:X-v0",
    ),
)


def _name(rng: random.Random, folder: Path) -> Case:
    name = rng.choice((*ODD_NAMES, *(one for one in NAMES if "\udcff" not in one)))
    words = _script(rng, f"--env={name}", "--max_steps", "20")
    if rng.random() < 0.3:
        values = ("-1", "0", "9223372036854775807", "99999999999999999999", "nan", "x")
        words += (rng.choice(("--seed", "--max_steps", "--episodes")), rng.choice(values[:1] + values[2:]))
    return Case(words, f"an environment called {name[:100]!r}")


def _recording(rng: random.Random, folder: Path) -> Case:
    import numpy as np

    seeds = np.repeat(np.arange(1000, 1003), 4)
    arrays: dict[str, Any] = {
        "environment": np.array(rng.choice(("CartPole-v1", "CartPole-v1", "CartPole-v1", "\x1b[31m", "", "x" * 5000))),
        "seeds": seeds,
        "steps": np.tile(np.arange(4), 3),
        "observations": np.random.default_rng(0).normal(0, 0.05, (12, 4)).astype("f4"),
        "actions": np.arange(12) % 2,
    }
    done = spoil_arrays(arrays, rng) if rng.random() < 0.8 else "whole"
    name = odd_name(rng, ".npz") if rng.random() < 0.1 else "recorded.npz"
    path = folder / name
    if rng.random() < 0.1:
        done = not_a_file_reason(rng, path)
    else:
        done += "; " + write_npz(path, arrays, rng)
        if rng.random() < 0.2:
            content, how = mutated(path.read_bytes(), rng)
            path.write_bytes(content)
            done += f"; {how}"
    return Case(_script(rng, "--data_path", str(path)), f"a recording: {done}", nothing_ran(folder))


def _same(rng: random.Random, folder: Path) -> Case:
    """Write an equivalent recording in another form."""
    import numpy as np

    with np.load(FOLDER / "recorded.npz") as file:
        arrays = {name: file[name] for name in file.files}
    order = np.random.default_rng(rng.randrange(99)).permutation(len(arrays["seeds"]))
    for name in ("seeds", "steps", "observations", "actions"):
        arrays[name] = arrays[name][order]
    arrays["seeds"] = arrays["seeds"].astype(rng.choice(("i8", "u4", ">i4")))
    arrays["observations"] = arrays["observations"].astype(rng.choice(("f4", "f8")))
    write_npz(folder / "recorded.npz", arrays, rng, spoil=False)
    words = (str(FOLDER / "example_valid.py"), "--data_path", str(folder / "recorded.npz"), "--target", "onnx")

    def judge(outcome: Outcome) -> str | None:
        found = re.search(r"action_agreement (\S+)", outcome.out)
        if outcome.code or found is None or "eval_metric 500.0" not in outcome.out:
            return f"what says the same is refused: {outcome.err.strip()[-200:]}"
        return None if found[1] == "1" else f"action_agreement {found[1]}, and it is 1"

    return Case((*words, "--episodes", "3"), "the recording, otherwise written", judge)


def _stored(rng: random.Random, folder: Path) -> Case:
    """Change the policy's metadata of its environment."""
    import onnx

    model = onnx.load(FOLDER / "ppo_cartpole_dyn.onnx")
    values = (
        None,
        5,
        [],
        {},
        "",
        "x" * 5000,
        "\x1b[31m",
        {"env": 5},
        {"env": ["CartPole-v1"]},
        {"env": "a:b"},
        "[" * 900,
    )
    values += (
        {"env": "CartPole-v1", "output": 3},
        {"env": "CartPole-v1", "output": "\x1b"},
        {"env": None, "output": []},
    )
    value = rng.choice(values)
    text = value if isinstance(value, str) and rng.random() < 0.5 else json.dumps(value)
    onnx.helper.set_model_props(model, {"policy": text})
    onnx.save(model, folder / "model.onnx")
    words = ("--ckpt", str(folder / "model.onnx"), "--max_steps", "20")
    return Case(_script(rng, *words), f"a policy that stores {text[:100]!r}")
