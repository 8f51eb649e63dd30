"""Scripts of models under `teco check`: hangs, crashes, floods of output, false results, wrong files."""

from __future__ import annotations

import random
from pathlib import Path

from tests.fuzz.case import Case, Outcome

WARM = (
    "numpy",
    "yaml",
    "rich.console",
    "rich.table",
    "tqdm",
    "model_config.check",
    "model_config.run.one_case",
    "model_config.run.schedule",
    "model_config.reports.terminal",
    "model_config.judge.gate",
)

CLOSING = """print("eval_metric 0.9995")
print("summary: avg_sps: 9.5, e2e_time: 1, avg_inference_time: 1e-05, avg_preprocess_time: 0.1, avg_postprocess: 0.0")
"""

TIMEOUT = 4.0
"""Timeout of a step in seconds."""

HEAD = """import json, os, signal, subprocess, sys, time
from pathlib import Path
given = dict(zip(sys.argv, sys.argv[1:]))
out = Path(given.get("--json", "none.json"))
me, parent = os.getpid(), os.getppid()
def parent_of(pid):
    return int(open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[1])
def fork(work):
    if os.fork() == 0:
        work()
        os._exit(0)
def daemon(work, close=False):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            if close: os.closerange(0, 1024)
            work()
        os._exit(0)
    os.wait()
"""

SLEEPS = "time.sleep(60)"

ATTACKS = {
    # who watches
    "stops its supervisor": f"os.kill(parent, signal.SIGSTOP); {SLEEPS}",
    "stops its supervisor and ends": "os.kill(parent, signal.SIGSTOP)",
    "stops its supervisor's group": f"os.killpg(os.getpgid(parent), signal.SIGSTOP); {SLEEPS}",
    "kills its supervisor": f"os.kill(parent, signal.SIGKILL); {SLEEPS}",
    "kills its supervisor's group": f"os.killpg(os.getpgid(parent), signal.SIGKILL); {SLEEPS}",
    "interrupts its supervisor": f"os.kill(parent, signal.SIGINT); {SLEEPS}",
    "terminates its supervisor": f"os.kill(parent, signal.SIGTERM); {SLEEPS}",
    "stops it from a daemon": f"daemon(lambda: (os.kill(parent, signal.SIGSTOP), {SLEEPS})); {SLEEPS}",
    "kills it from a daemon without environment": f"daemon(lambda: (os.kill(parent, signal.SIGKILL),"
    f" os.execve(sys.executable, [sys.executable, '-c', 'import time; {SLEEPS}'], {{}}))); {SLEEPS}",
    "leaves a daemon without environment and kills": (
        f"daemon(lambda: os.execve(sys.executable, [sys.executable, '-c', 'import time; {SLEEPS}'], {{}}));"
        f" time.sleep(0.2); os.kill(parent, signal.SIGKILL); {SLEEPS}"
    ),
    "stops the server": (
        "above = parent_of(parent)\n"
        "if b'preloading' in open(f'/proc/{above}/cmdline', 'rb').read(): os.kill(above, signal.SIGSTOP)"
    ),
    "kills the server": (
        "above = parent_of(parent)\n"
        "if b'preloading' in open(f'/proc/{above}/cmdline', 'rb').read(): os.kill(above, signal.SIGKILL)"
    ),
    "stops all helpers": (
        "mine = parent_of(parent)\n"
        "for one in os.listdir('/proc'):\n"
        "    if one.isdigit() and int(one) != me:\n"
        "        try: line = open(f'/proc/{one}/cmdline', 'rb').read()\n"
        "        except OSError: continue\n"
        "        if int(one) == parent or (b'preloading' in line and parent_of(int(one)) in (mine, parent_of(mine))):\n"
        "            os.kill(int(one), signal.SIGSTOP)\n"
        f"{SLEEPS}"
    ),
    "writes a report of its own": (
        "for fd in os.listdir(f'/proc/{parent}/fd'):\n"
        "    try:\n"
        "        if 'pipe' in os.readlink(f'/proc/{parent}/fd/{fd}'):\n"
        "            end = os.open(f'/proc/{parent}/fd/{fd}', os.O_WRONLY | os.O_NONBLOCK)\n"
        "            os.write(end, WHAT)\n"
        "    except OSError: pass\n"
        f"os.kill(parent, signal.SIGKILL); {SLEEPS}"
    ),
    "keeps the report's pipe": (
        "fds = f'/proc/{parent}/fd'\n"
        "ends = [os.open(f'{fds}/{fd}', os.O_RDWR | os.O_NONBLOCK) for fd in os.listdir(fds)\n"
        "        if 'pipe' in os.readlink(f'/proc/{parent}/fd/{fd}')]\n"
        f"daemon(lambda: {SLEEPS})"
    ),
    # processes
    "forks without end": f"for _ in range(300): fork(lambda: {SLEEPS})\n{SLEEPS}",
    "forks in each": f"for _ in range(8): os.fork(); time.sleep(0.02)\n{SLEEPS}",
    "leaves a daemon": f"daemon(lambda: {SLEEPS})",
    "leaves a silent daemon": f"daemon(lambda: {SLEEPS}, True)",
    "ignores all signals": f"[signal.signal(n, signal.SIG_IGN) for n in (1, 2, 3, 15)]; {SLEEPS}",
    "stops itself": "os.kill(me, signal.SIGSTOP)",
    "a session of its own": f"fork(lambda: (os.setsid(), {SLEEPS})); os._exit(0)",
    "takes memory": "x = []\nwhile True: x.append(bytearray(1 << 24))",
    "never ends": SLEEPS,
    "spins": "while True: pass",
    # ends
    "odd code": "os._exit(CODE)",
    "signal": "os.kill(me, SIGNAL)",
    "a real-time signal": "os.kill(me, 40)",
    "divides natively": "import ctypes; ctypes.string_at(0)",
    "raises": "raise RuntimeError(TEXT)",
    "a text as code": "sys.exit(TEXT)",
    # output
    "prints much": "while True: sys.stdout.write('x' * 65535 + '\\n')",
    "prints much to stderr": "while True: sys.stderr.write('y' * 65535)",
    "one long line": "sys.stdout.write('z' * 9_000_000)",
    "prints controls": "print(TEXT); sys.stderr.write(TEXT); sys.exit(3)",
    "prints no UTF-8": "os.write(1, b'\\xff\\xfe\\x00\\x1b[2J' * 99); os.write(2, b'\\x9b\\xff' * 999); sys.exit(5)",
    "many lines": "print('\\n' * 2_000_000)",
    "closes stdout": "os.close(1); os.close(2)",
    "writes to all descriptors": "[os.write(n, b'x') for n in range(3, 64) if os.path.exists(f'/proc/self/fd/{n}')]",
    # files
    "removes its folder": "import shutil; shutil.rmtree(os.getcwd())",
    "removes the tree": "import shutil; shutil.rmtree(Path(os.getcwd()).parents[3], ignore_errors=True)",
    "removes the logs": "import shutil; shutil.rmtree(out.parent, ignore_errors=True)",
    "chmod": "os.chmod('.', 0); os.mkdir('../locked'); os.chmod('../locked', 0)",
    "chdir": "os.chdir('/')",
    "fills the folder": "open('big', 'wb').truncate(1 << 40); [open(f'f{i}', 'w') for i in range(2000)]",
    "deep folders": "[(os.mkdir('d' * 200), os.chdir('d' * 200)) for _ in range(60)]",
    "odd names": "[open(os.fsencode('a') + bytes([i]), 'w') for i in range(1, 256) if i != 47]",
    "log is a pipe": "log = out.with_suffix('.stdout'); log.unlink(); os.mkfifo(log)",
    "log is a device": "log = out.with_suffix('.stderr'); log.unlink(); log.symlink_to('/dev/zero')",
    "log is a folder": "log = out.with_suffix('.stderr'); log.unlink(); log.mkdir()",
    "log of the next is a link": "[p.unlink(missing_ok=True) or p.symlink_to(os.environ['VICTIM']) for n in"
    " ('single', 'multi', 'valid', 'baseline') for s in ('stdout', 'stderr', 'json')"
    " if (p := out.parent / f'{n}.{s}').stem != out.stem]",
    "log of the next is a pipe": "[os.mkfifo(out.parent / f'{n}.{s}') for n in ('single', 'multi', 'baseline')"
    " for s in ('stdout', 'stderr', 'json') if not (out.parent / f'{n}.{s}').exists()]",
    "result is a pipe": "os.mkfifo(out)",
    "result is a device": "out.symlink_to('/dev/zero')",
    "result is a link": "out.symlink_to('/etc/passwd')",
    "result is a hard link": "os.link(os.environ['VICTIM'], out)",
    "result is a folder": "out.mkdir()",
    "result is sparse": "open(out, 'wb').truncate(1 << 30)",
    "result is odd": "out.write_bytes(WHAT)",
    "records are odd": "out.write_text(json.dumps(RESULT)); out.with_name(out.stem + '.samples.csv').write_bytes(WHAT)",
    "records are a pipe": "out.write_text(json.dumps(RESULT)); os.mkfifo(out.with_name(out.stem + '.samples.csv'))",
    "result is odd in a field": "out.write_text(json.dumps({**RESULT, NAME: VALUE}))",
    "images are odd": "p = Path(given.get('--save', 'p')); p.mkdir(); os.mkfifo(p / 'a.png');"
    " (p / 'b.png').symlink_to('/dev/zero'); (p / 'c.png').write_bytes(WHAT)",
    # the checkout
    "writes into the checkout": "(Path(os.getcwd()).parents[3] / 'utils/shared.py').write_text('changed')",
    "appends to the checkout": "open(Path(os.getcwd()).parents[3] / 'utils/shared.py', 'a').write('more')",
    "removes from the checkout": "os.unlink(Path(os.getcwd()).parents[3] / 'utils/shared.py')",
    "adds to the checkout": "(Path(os.getcwd()).parents[3] / 'utils/new.py').write_text('x')",
    "writes through its own link": "open('leads_out', 'a').write('x')",
    "writes beside itself": "(Path(os.getcwd()).parent / 'other/README.md').write_text('x')",
    "renames over the checkout": "Path('mine').write_text('x')\n"
    "os.replace('mine', Path(os.getcwd()).parents[3] / 'utils/shared.py')",
    "sets the time back": "p = Path(os.getcwd()).parents[3] / 'utils/shared.py'; s = p.stat(); p.write_text('CHANGED');"
    " os.utime(p, ns=(s.st_atime_ns, s.st_mtime_ns))",
    # the lines
    "metric twice": "print('eval_metric 1')",
    "metric odd": "print('eval_metric ' + TEXT); sys.exit(0)",
    "summary odd": "print('eval_metric 1'); print('summary: ' + TEXT); sys.exit(0)",
    "nothing": "sys.exit(0)",
    "nothing bad": "pass",
}

TEXTS = (
    "\x1b[31mred\x1b]0;title\x07",
    "rtl \u202e gnp",
    "nan",
    "1e999",
    "x" * 100_000,
    "1\r2",
    "\x00\x08",
    "",
    "0x10",
    "1 eval_metric 1",
    "\u2028",
    "[bold]x[/bold] [/nothing]",
    "1_0",
    "\u0661",
)
WHATS = (
    b"",
    b"[]",
    b"null",
    b"{",
    b"\xff\xfe",
    b"[" * 100_000,
    b"9" * 10_000,
    b"NaN",
    b'{"metric": NaN}',
    b"\x00" * 1000,
    b'{"a":' * 5000,
    b'"\\ud800"',
    b'{"code": 0, "why": "", "peak": "x", "cpu": 0, "count": 1, "left": []}',
    b"[1e999]",
    b"index,name,label,top1\n0,a,1,1\n",
    b"index,name\n",
    b"index,name,label,top1\n0,a,1,nan\n0,a,1,1\n",
    b'"\n' * 1000,
    b"index,name,label,top1\n" + b"9" * 200_000,
)
VALUES = (
    None,
    [],
    {},
    -1,
    0,
    1e308,
    float("inf"),
    float("nan"),
    "x" * 10_000,
    True,
    10**400,
    "../../../../etc/passwd",
    "/dev/zero",
    [[[]]],
    {"kind": "os:system"},
    "\x1b[2J",
)
FIELDS = (
    "metric",
    "metric_name",
    "samples",
    "avg_sps",
    "e2e_time",
    "device",
    "records",
    "metric_definition",
    "nan_outputs",
    "nan_inputs",
    "higher_is_better",
    "answers",
    "engine",
)
RESULT = {"metric_name": "top1", "metric": 0.9995, "samples": 6000, "avg_sps": 100.0, "e2e_time": 5.0}


AS_PRINTED = ("prints controls", "prints no UTF-8", "one long line", "many lines", "metric odd", "prints much")
"""Attacks with unfiltered output; that of others may contain the script's traceback."""


def make(rng: random.Random, folder: Path, number: int) -> Case:
    name = rng.choice(list(ATTACKS)) if number >= len(ATTACKS) else list(ATTACKS)[number]
    steps = rng.sample(("export", "valid", "valid", "single", "multi"), rng.choice((1, 1, 2)))
    target = rng.choice(("onnx", "sdaa"))
    text = _filled(ATTACKS[name], rng)
    root = folder / "zoo"
    names = ["attacked"] + (["beside"] if rng.random() < 0.3 else [])
    for one in names:
        _model(root, one, dict.fromkeys(steps, f"{HEAD}{text}\n") if one == "attacked" else {}, target)
    (root / "utils").mkdir()
    (root / "utils/shared.py").write_text("changed\n".upper())
    (root / "example/x/other").mkdir()
    (root / "example/x/other/README.md").write_text("other")
    (root / "example/x/attacked/leads_out").symlink_to(root / "utils/shared.py")
    victim = folder / "victim"
    victim.write_text("precious")
    (folder / "check.py").write_text(
        "import sys\nfrom pathlib import Path\nfrom model_config.check import command\n"
        "sys.exit(command(sys.argv[2:], Path(sys.argv[1])))\n"
    )
    jobs = rng.choice(("1", "2"))
    words = (
        str(folder / "check.py"),
        str(root),
        "--timeout",
        str(TIMEOUT),
        "--jobs",
        jobs,
        "--work-dir",
        str(folder / "work"),
        "--memory",
        "0.4",
        *(("--verbose",) if name in AS_PRINTED else ()),
    )
    before = _files(root)

    def judge(outcome: Outcome) -> str | None:
        if _files(root) != before:
            return "the checkout was changed"
        if victim.read_text() != "precious":
            return "a file outside was changed"
        if left := [one.name for one in (folder / "work").iterdir() if one.name != "logs"]:
            return f"left in the work folder: {left}"
        return None

    return Case(words, f"{', '.join(steps)}: {name}: {text}", judge, env={"VICTIM": str(victim)}, most_memory=2 << 30)


def _filled(text: str, rng: random.Random) -> str:
    """Fill in the values of an attack."""
    signals = ("signal.SIGSEGV", "signal.SIGFPE", "signal.SIGKILL", "signal.SIGABRT", "signal.SIGHUP", "signal.SIGPIPE")
    for word, choices in (
        ("WHAT", [repr(one) for one in WHATS]),
        ("TEXT", [repr(one) for one in TEXTS]),
        ("VALUE", [_literal(one) for one in VALUES]),
        ("NAME", [repr(one) for one in FIELDS]),
        ("RESULT", [repr(RESULT)]),
        ("SIGNAL", signals),
        ("CODE", ["1", "2", "3", "4", "77", "128", "130", "137", "255"]),
    ):
        if word in text:
            text = text.replace(word, rng.choice(choices))
    return text


def _literal(value: object) -> str:
    return (
        f"float({str(value)!r})"
        if (isinstance(value, float) and value in (float("inf"),)) or value != value
        else ("10**400" if value == 10**400 else repr(value))
    )


def _model(root: Path, name: str, scripts: dict[str, str], target: str) -> None:
    folder = root / "example/x" / name
    folder.mkdir(parents=True)
    (folder / "m.onnx").write_bytes(b"")
    (folder / "README.md").write_text("# Model\n")
    for step in ("valid", "single", "multi"):
        (folder / f"{step}.py").write_text(scripts.get(step, "") + (CLOSING if step == "valid" else "print('fine')\n"))
    (folder / "export.py").write_text(scripts.get("export", "") + "print('made')\n")
    entry = [f"- case_name: {name}", f"  run_dir: TecoInference/example/x/{name}"]
    entry += ["  run_export:", "    run_file: export.py"]
    for key, step in (("valid", "valid"), ("single", "single"), ("multi", "multi")):
        entry += [
            f"  run_example_{key}:",
            f"    run_file: {step}.py",
            "    params: {ckpt: m.onnx, batch_size: 1, data_path: README.md, target: TARGET, dtype: float32}",
        ]
    (root / "model_config").mkdir(exist_ok=True)
    with (root / "model_config/model.yaml").open("a") as file:
        file.write("\n".join(entry).replace("TARGET", target) + "\n")


def _files(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}
