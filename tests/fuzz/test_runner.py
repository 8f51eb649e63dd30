"""The fuzzer itself: it finds injected errors only, and the same seed gives the same cases."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
from support import ROOT

from tests.fuzz.case import Case, Outcome
from tests.fuzz.judge import judge
from tests.fuzz.kinds import KINDS, configs, flags, kind, texts
from tests.fuzz.makers import yaml_attacks
from tests.fuzz.makers.bytes_of import mutated

PLANTED = {
    "traceback": "raise ValueError('x')",
    "crash": "import os; os.abort()",
    "hang": "import time; time.sleep(60)",
    "left": "import subprocess; subprocess.Popen(['sleep', '60'])",
    "code": "raise SystemExit(77)",
    "silent": "raise SystemExit(2)",
    "raw": "print('a\\x1b[31mb')",
    "long": "print('x' * 5000)",
    "memory": "x = bytearray(300 << 20)",
    "wrong": "print('7')",
    None: "import sys; print('6', file=sys.stderr); sys.exit(2)",
}
"""Word of the finding -> a program that causes it."""

SCRIPT = """\
import json, sys
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.fuzz.case import Case
from tests.fuzz.judge import judge
from tests.fuzz.runner import adopt_orphans, run
adopt_orphans()
found = {{}}
work = Path({work!r})
for i, (word, program) in enumerate(json.loads({planted!r})):
    folder = work / f"case{{i}}"
    folder.mkdir()
    (folder / "program.py").write_text(program)
    tell = lambda outcome: "a 7" if outcome.out == "7\\n" else None
    case = Case((str(folder / "program.py"),), "planted", tell, most_memory=200 << 20)
    finding = judge(case, run(case, folder, {{}}, 15.0), 15.0)
    found[str(word)] = None if finding is None else finding.word
print(json.dumps(found))
"""


@pytest.mark.slow
@pytest.mark.long
def test_injected_faults_are_found(tmp_path: Path) -> None:
    planted = json.dumps(list(PLANTED.items()))
    script = SCRIPT.format(root=str(ROOT), work=str(tmp_path), planted=planted)
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=300)
    assert json.loads(ran.stdout) == {str(word): word for word in PLANTED}


def test_a_crash_of_the_runtime_alone_is_excused() -> None:
    died = Outcome(-8, "", "", 0.1, 0)
    blamed = judge(Case(("x",), "what"), died, 30.0)
    assert blamed is not None
    assert blamed.detail == "ended by SIGFPE"
    assert judge(Case(("x",), "what", excused=lambda outcome: "ONNX Runtime dies too"), died, 30.0) is None


def test_findings_with_one_cause_have_one_key() -> None:
    keys = set()
    for number in (3, 4):
        text = f'Traceback (most recent call last):\n  File "engine/x.py", line {number}, in f\nKeyError: {number}\n'
        finding = judge(Case(("x",), "what"), Outcome(1, "", text, 0.1, 0), 30.0)
        assert finding is not None
        keys.add(finding.key)
    assert keys == {"traceback: KeyError in f (engine/x.py:#)"}


def test_the_same_seed_makes_the_same_bytes() -> None:
    first, second = (mutated(bytes(range(256)), random.Random("a")) for _ in range(2))
    assert first == second
    assert first[0] != mutated(bytes(range(256)), random.Random("b"))[0]


def test_no_command_line_checks_or_runs_the_whole_zoo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flags, "TOOLS", (("check",),))
    monkeypatch.setattr(flags, "_flags", lambda words: [("--no-cache", False)])
    rng = random.Random("a")
    for _ in range(300):
        words = flags._tool(rng, tmp_path, ["text.txt"]).words
        assert (words[3] and not words[3].startswith("-")) or words[3] in flags.WORDS, words


def test_work_of_language_models_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "_broken_table", lambda rng, content: (content + b"a\n" * 1000, "more lines"))
    rng = random.Random("a")
    for place in range(100):
        folder = tmp_path / str(place)
        folder.mkdir()
        words = texts._prompts(rng, folder).words
        if "100" in words:
            assert all(path.read_bytes().count(b"\n") < 200 for path in (folder / "data").iterdir() if path.is_file())


def test_changed_values_are_not_recursive_and_do_not_affect_the_next_case() -> None:
    before = repr(yaml_attacks.VALUES)
    for number in range(300):
        yaml_attacks.changed({"a": {"b": [1, {"c": 2}]}, "d": [[3]]}, random.Random(number), "/outside")
    assert repr(yaml_attacks.VALUES) == before


def test_pass_files_of_cases_print_nothing() -> None:
    assert not [value for value in configs._PASS_VALUES if "print" in value]


def test_results_may_take_the_place_of_a_model_that_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flags, "_flags", lambda words: [("--json", True)])
    rng, changed = random.Random("a"), set()
    for place in range(20):
        folder = tmp_path / str(place)
        folder.mkdir()
        case = flags._script(rng, folder, ["text.txt"])
        (folder / "model.onnx").write_bytes(b"results")
        wrong = case.judge(Outcome(0, "", "", 0.1, 0)) or ""
        changed.add(("--ckpt" in case.words, wrong.startswith("the model file was changed")))
    assert changed == {(True, True), (False, False)}


def test_unknown_kinds_are_one_line() -> None:
    words = [sys.executable, "-m", "tests.fuzz", "image"]
    ran = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert ran.stderr == f"image: no such kind; use all, or of: {', '.join(KINDS)}\n"


def test_equal_images_must_have_equal_answers(tmp_path: Path) -> None:
    made = kind("images").make(_Same(), tmp_path, 0)
    (tmp_path / "answers.json").write_text('{"answers": []}')
    assert made.judge(Outcome(0, "", "", 0.1, 0)) == "the same image has 0 answers in 0 files"
    assert made.judge(Outcome(2, "", "error: the name of a class is too long", 0.1, 0)) is None


class _Same(random.Random):
    """Draws that make a case of one image in many formats."""

    def random(self) -> float:
        return 0.0
