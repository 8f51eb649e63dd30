"""Results of checks that cover all cases of reports."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import yaml
from PIL import Image

from model_config.results import Accuracy, CaseResult, CheckResult, Drawn, Finding, Speed, StepResult, Verdict
from utils.draw import draw_answer

HOSTILE = (
    '<script>document.title="pwned"</script><img src=x onerror=alert(1)> | `x` @octocat #12 '
    "\x1b[31mred\x1b[0m \x00 \u202e"
)
"""Text that breaks HTML, Markdown tables, mentions, XML and text direction unless escaped."""

PASSED = Accuracy(
    Verdict.PASS,
    "-0.02 % is proven to be within 0.1 %",
    "onnx float32",
    "top1",
    0.7611,
    0.76125,
    -0.0002,
    0.001,
    samples=50_000,
    interval=(-0.00071, 0.00031),
    better=61,
    worse=68,
    differing=129,
    method="counts",
    bound=0.00071,
)
OPEN = Accuracy(
    Verdict.INCONCLUSIVE,
    "360 samples cannot tell 0 % from 0.1 %; 10 900 would",
    "onnx float32",
    "top1",
    0.994444,
    0.994444,
    0.0,
    0.001,
    samples=360,
    interval=(-0.0082, 0.0082),
    method="counts",
    bound=0.0082,
    needed=10_900,
)
FAILED = Accuracy(
    Verdict.FAIL,
    "mAP is 2.1 % lower, the tolerance is 1 %",
    "train.py, PyTorch",
    "mAP",
    0.3671,
    0.375,
    -0.02107,
    0.01,
    samples=5000,
    interval=(-0.0263, -0.0158),
    differing=2900,
    changed=("000000000139.jpg", "000000000285.jpg"),
    method="differences",
    bound=0.0263,
)
SPEEDS = (
    Speed(
        Verdict.PASS,
        "simulated time per sample: the stored one",
        "simulated time per sample",
        1.92e-5,
        "s",
        1.92e-5,
        1.0,
        "same",
    ),
    Speed(
        Verdict.PASS,
        "1.31 times the stored one",
        "host time per sample over the calibration kernel's",
        39.4,
        "ratio",
        30.1,
        1.309,
        "1.2",
    ),
)
SLOW = Speed(
    Verdict.FAIL,
    "simulated time per sample: 3.1 times the stored one",
    "simulated time per sample",
    3.1e-4,
    "s",
    1e-4,
    3.1,
    "2",
)
NOTHING_STORED = Speed(Verdict.NONE, "nothing stored to compare with", "simulated time per sample", 1e-4, "s")


class Page(HTMLParser):
    """Parser that collects tags with attributes and script texts, and checks that tags are closed in order."""

    VOID = ("meta", "input", "img", "br", "wbr")

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.open: list[str] = []
        self.scripts: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts.append(data)

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.tags if name == tag]


def visible(html: str) -> str:
    """Return the text of a piece of HTML without its tags, on one line."""
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", html)).split())


class Samples:
    """Results with logs and images in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def log(self, name: str, text: str) -> Path:
        path = self.folder / "logs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode("utf-8", "replace"))
        return path

    def step(self, case: str, name: str, *, reason: str = "", stdout: str = "", stderr: str = "") -> StepResult:
        script = {"export": "export_onnx.py", "valid": "example_valid.py"}.get(name, f"example_{name}_batch.py")
        slug = f"{abs(hash(case))}/{name}"
        return StepResult(
            case,
            name,
            ("python", script, "--ckpt", "m_dyn.onnx", "--data_path", "data/a b"),
            not reason,
            1.25,
            1 if reason else 0,
            reason,
            self.log(f"{slug}.stdout", stdout),
            self.log(f"{slug}.stderr", stderr),
            eval_metric=0.994444 if name == "valid" and not reason else None,
            peak_memory=412 << 20,
        )

    def steps(self, case: str) -> tuple[StepResult, ...]:
        valid = (
            "".join(f"\rstep {index}/6" for index in range(7)) + "\neval_metric 0.994444\nsummary: avg_sps: 2912.5\n"
        )
        return (
            self.step(case, "export", stdout="digits_dyn.onnx: written\ndigits_float16_dyn.onnx: written\n"),
            self.step(case, "valid", stdout="\x1b[32mopened\x1b[0m sdaa\n" + valid),
            replace(self.step(case, "single", stdout="0081.png: 7 (0.998)\n"), images=self.images(2)),
            replace(self.step(case, "multi", stdout="a\n" * 40), images=self.images(8)),
        )

    def images(self, count: int) -> tuple[Path, ...]:
        paths = []
        for index in range(count):
            path = self.folder / f"图片 {index}.png"
            if not path.exists():
                image = Image.linear_gradient("L").resize((640, 480)).rotate(40 * index)
                draw_answer(image, [f"{index} (0.99{index})", f"{index + 1} (0.004)"]).save(path)
            paths.append(path)
        return tuple(paths)

    def good(self, name: str = "digits", run_dir: str = "example/classification/digits") -> CaseResult:
        return CaseResult(
            name,
            run_dir,
            "sdaa",
            steps=self.steps(name),
            accuracy=(PASSED, replace(PASSED, against="train.py, PyTorch")),
            speed=SPEEDS,
            seconds=15.4,
            partial="the first 360 samples of the data",
        )

    def broken(self, name: str = "yolov5s", run_dir: str = "contrib/example/detection/yolov5") -> CaseResult:
        trace = "".join(
            f'  File "layer_{index}.py", line {index}, in forward\n    return self.next(x)\n' for index in range(20)
        )
        trace += "ValueError: shapes (4, 3) and (2, 4) not aligned\n"
        findings = (
            Finding(
                f"{run_dir}/README.md",
                12,
                "readme-headings",
                "heading '## Usage' is not one of the list",
                "rename it to '## Inference'",
            ),
            Finding(
                f"{run_dir}/example_valid.py",
                88,
                "absolute-path",
                "'/data/coco' is an absolute path",
                "take it from --data_path",
            ),
        )
        reason = "exit code 1: ValueError: shapes (4, 3) and (2, 4) not aligned"
        steps = (
            self.step(name, "export", stdout="done\n"),
            self.step(name, "valid", reason=reason, stderr=trace, stdout="opened\n"),
        )
        drawn = (
            Drawn("a.jpg", "", "a dog 0.51", "a cat 0.52", *self.images(2)),
            Drawn("b.txt:7", "a text", "positive 0.50", "negative 0.50"),
            Drawn("c.jpg", "", "the same", "the same", *self.images(1) * 2),
        )
        return CaseResult(name, run_dir, "onnx", findings, steps, (FAILED,), (SLOW,), 74.0, drawn=drawn)

    def hostile(self) -> CaseResult:
        step = self.step(
            HOSTILE, "single", reason=HOSTILE, stdout=HOSTILE * 3, stderr=f"```\n</pre></details>{HOSTILE}\n````\n"
        )
        found = (Finding(HOSTILE, 1, HOSTILE, HOSTILE, HOSTILE),)
        judged = replace(FAILED, reason=HOSTILE, against=HOSTILE, metric_name=HOSTILE)
        slow = replace(SLOW, reason=HOSTILE, what=HOSTILE, unit=HOSTILE, bucket=HOSTILE)
        return CaseResult(
            HOSTILE,
            HOSTILE,
            HOSTILE,
            found,
            (step,),
            (judged,),
            (slow,),
            notes=(HOSTILE,),
            partial=HOSTILE,
            drawn=(Drawn(HOSTILE, HOSTILE, HOSTILE, HOSTILE[1:], self.folder, self.folder / "gone.png"),),
        )

    def check(self) -> CheckResult:
        """All verdicts, a cached case, Chinese names."""
        cases = (
            self.good(),
            self.broken(),
            CaseResult(
                "mobilenet_v2",
                "contrib/example/classification/mobilenet",
                "sdaa",
                steps=self.steps("m")[:2],
                accuracy=(OPEN,),
                speed=SPEEDS[:1],
                seconds=21.0,
            ),
            CaseResult(
                "resnet18_random",
                "example/classification/resnet",
                "sdaa",
                steps=self.steps("r")[:2],
                speed=(NOTHING_STORED,),
                seconds=0.2,
                cached=True,
                notes=("random weights: accuracy is not judged",),
            ),
            CaseResult(
                "中文模型",
                "contrib/example/nlp/中文模型",
                "cpu",
                steps=self.steps("中"),
                accuracy=(PASSED,),
                seconds=40.2,
            ),
            CaseResult(
                "skeleton",
                "contrib/example/speech/skeleton",
                findings=(
                    Finding(
                        "contrib/example/speech/skeleton", 0, "required-files", "has no requirements.txt", "add one"
                    ),
                ),
            ),
        )
        machine = {"python": "3.11.7", "numpy": "2.4.6", "onnxruntime": "1.31.1", "machine": "x86_64", "cores": 2}
        return CheckResult(
            cases, (), False, 96.3, "1e0c0dd-dirty", "2026-11-21T07:00:00+00:00", self.folder / "logs", machine
        )


def scorecards(
    folder: Path, case: str, *, relative: float = 0.0, value: float = 0.994444, latency: float = 1.23e-3
) -> None:
    """Write the two files of a scorecard, as a check does."""
    head = {
        "schema_version": 1,
        "written_by": "teco check 0.1.0",
        "commit": "1e0c0dd",
        "date": "2026-11-21T07:00:00+00:00",
    }
    head["versions"] = {"python": "3.11.7", "numpy": "2.4.6", "onnxruntime": "1.31.1"}
    entry = {"metric": "top1", "value": value, "samples": 360, "model_sha256": "ab" * 32, "data_sha256": None}
    one = {
        "reference": "onnx float32",
        "value": value / (1 + relative),
        "relative_difference": relative,
        "verdict": "PASS",
    }
    one |= {"tolerance": 0.001, "samples": 360, "interval": [relative - 0.0007, relative + 0.0007]}
    metrics, figures = [], []
    for target, dtype in (("sdaa", "float16"), ("onnx", "float32")):
        key = {"case": case, "target": target, "dtype": dtype, "batch_size": 64}
        metrics.append({**key, **entry, "against": [one] if target == "sdaa" else []})
        times = {"host_s": latency / 4, "kernel_s": 0.0123}
        if target == "sdaa":
            times |= {"simulated_s": latency / 64, "simulated_latency_s": latency}
        figures.append({**key, "model_sha256": "ab" * 32, **times})
    for name, body in (("numerics.yaml", {"metrics": metrics}), ("perf.yaml", {"figures": figures})):
        (folder / name).write_text(yaml.safe_dump({**head, **body}, allow_unicode=True), encoding="utf-8")


def make_zoo(root: Path) -> None:
    """Make a repository of four models, one of which was never checked."""
    folders = {"example/classification/digits": "Digits", "contrib/example/detection/yolov5": "YOLOv5"}
    folders |= {"contrib/example/nlp/中文模型": "中文模型", "example/classification/resnet": "ResNet"}
    for index, (name, title) in enumerate(folders.items()):
        folder = root / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "README.md").write_text(f"# {title}\n", encoding="utf-8")
        (folder / "example_valid.py").write_text("", encoding="utf-8")
        if title != "ResNet":
            scorecards(
                folder,
                title.lower(),
                relative=-0.0002 * index,
                value=0.99 - 0.1 * index,
                latency=1e-3 * (1 + 9 * index),
            )
