"""The page of the zoo: cards of trained models, their examples and charts, and how wide it is in a browser."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path

import pytest
import yaml
from PIL import Image
from report_samples import HOSTILE, Page, Samples, make_zoo, scorecards, visible
from support import ROOT

from engine import ConfigError
from model_config.cases.config import CONFIGS, read_cases
from model_config.judge.scorecard import hash_models
from model_config.reports import build_site, html_page
from model_config.reports.answers import SIDE, Answer, read_answer, write_answer
from model_config.reports.speed_chart import BOTTOM, TOP, Measured, speed_chart
from toolkit.chart import Chart, Line
from toolkit.output import Column, ToolReport, html_text

SCRIPTS = ("valid", "single", "multi")
CHROMIUM = shutil.which("chromium")


@pytest.fixture
def samples(tmp_path: Path) -> Samples:
    return Samples(tmp_path)


def cards_of(html: str) -> dict[str, str]:
    """Return the content of each card by the model's name."""
    cards = re.findall(r'<article class="card model".*?</article>', html, re.DOTALL)
    return {found[1]: card for card in cards if (found := re.search(r'<h3><a href="[^"]*">(.*?)</a>', card))}


def test_the_site_has_a_card_of_each_trained_model(tmp_path: Path) -> None:
    make_zoo(tmp_path)
    build_site(tmp_path, tmp_path / "out" / "site.html")
    text = (tmp_path / "out" / "site.html").read_text(encoding="utf-8")
    cards = cards_of(text)
    assert sorted(cards) == ["digits", "yolov5", "中文模型"]
    shown = visible(cards["digits"])
    assert "metric onnx sdaa top1 0.9900 0.9900" in shown
    assert "64,000 samples/s batch 64" in shown
    assert "4,000 samples/s" in shown
    assert text.index("<article") < text.index('id="untrained"') < text.index("<details")
    untrained = visible(text[text.index('id="untrained"') : text.index("</table>", text.index('id="untrained"'))])
    assert "resnet classification ResNet" in untrained
    assert "digits" not in untrained
    Page(text)


def test_the_site_has_no_dirty_commit_and_no_empty_fact(tmp_path: Path) -> None:
    make_zoo(tmp_path)
    for path in tmp_path.glob("example/classification/digits/*.yaml"):
        path.write_text(path.read_text(encoding="utf-8").replace("1e0c0dd", "1e0c0dd-dirty"), encoding="utf-8")
    build_site(tmp_path, tmp_path / "site.html")
    text = (tmp_path / "site.html").read_text(encoding="utf-8")
    assert "1e0c0dd" in text, "of the others"
    assert "-dirty" not in text
    build_site(ROOT, tmp_path / "root.html")
    text = (tmp_path / "root.html").read_text(encoding="utf-8")
    assert "-dirty" not in text
    assert not re.search(r"<(td|dd)[^>]*>\s*(–\s*)?</\1>", "".join(cards_of(text).values()))


def test_the_site_shows_stored_answers_size_and_licence(tmp_path: Path) -> None:
    make_zoo(tmp_path)
    folder = tmp_path / "example/classification/digits"
    (folder / "digits_dyn.onnx").write_bytes(b"x" * 412_000)
    (folder / "digits_float16_dyn.onnx").write_bytes(b"x" * 99)
    (tmp_path / "model_config").mkdir()
    params = {"ckpt": "digits_float16_dyn.onnx", "batch_size": 1, "data_path": "d"}
    params |= {"target": "sdaa", "dtype": "float16"}
    case: dict[str, object] = {"case_name": "digits", "run_dir": "example/classification/digits"}
    case["run_export"] = {"run_file": "example_valid.py"}
    case |= {f"run_example_{step}": {"run_file": "example_valid.py", "params": params} for step in SCRIPTS}
    (tmp_path / "model_config/model.yaml").write_text(yaml.safe_dump([case]), encoding="utf-8")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/data.yaml").write_text(
        "- {what: w, from: f, licence: 'CC0, of [a page](x.md)', read_in: r, use: u,"
        " files: [example/classification/digits/digits*.onnx]}\n",
        encoding="utf-8",
    )
    Image.new("RGB", (500, 250), "red").save(tmp_path / "drawn.png")
    answer = Answer("digits", "sdaa", "float16", "ab", "", "7 (0.998)")
    write_answer(folder, answer, tmp_path / "drawn.png", "teco site 1")
    other = tmp_path / "contrib/example/nlp/中文模型"
    write_answer(other, answer._replace(sample=f"a film {HOSTILE}", text="positive 0.98"), None, "teco site 1")
    build_site(tmp_path, tmp_path / "site.html")
    text = (tmp_path / "site.html").read_text(encoding="utf-8")
    cards, images = cards_of(text), Page(text).all("img")
    assert [(image["width"], image["height"]) for image in images] == [(str(SIDE), str(SIDE // 2))]
    assert "7 (0.998)" in images[0]["alt"]
    assert "size, float32 0.41 MB" in visible(cards["digits"])
    assert visible(cards["digits"]).endswith("Licence: CC0, of a page")
    assert "Licence: CC0, of a page (u)." in visible(text)
    assert "→ positive 0.98" in visible(cards["中文模型"])
    assert "size" not in visible(cards["中文模型"])
    assert len(Page(text).scripts) == 1


@pytest.mark.parametrize("content", ["a: [", "- a", "schema_version: 2", "{schema_version: 1, case: 3}", "\x00"])
def test_an_invalid_answer_is_an_error_of_one_line(content: str, tmp_path: Path) -> None:
    make_zoo(tmp_path)
    path = tmp_path / "example/classification/digits/answer.yaml"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError, match="teco site --draw") as caught:
        build_site(tmp_path, tmp_path / "site.html")
    assert str(path) in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_stored_answers_are_those_of_the_committed_models() -> None:
    folders = [path.parent for path in ROOT.glob("example/*/*/answer.yaml")]
    assert len(folders) > 15
    cases = {case.name: case for case in read_cases([ROOT / name for name in CONFIGS])[0]}
    git = shutil.which("git")
    assert git is not None
    listed = subprocess.run([git, "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    committed = {ROOT / line for line in listed.splitlines()}
    for folder in folders:
        found = read_answer(folder)
        assert found is not None
        assert found.text
        step = next(step for step in cases[found.case].steps if step.name == "valid")
        # Others are exported here, by other versions of the packages than the stored one was.
        if committed.issuperset(folder / ckpt for ckpt in step.ckpts.values()):
            assert hash_models(folder, step.ckpts) == found.model_sha256, f"{folder}: run teco site --draw"
    drawn = [folder for folder in folders if (folder / "answer.webp").is_file()]
    assert len(drawn) > 8


def test_a_chart_compares_the_models_of_a_domain() -> None:
    models = [
        Measured("fast", "a/fast", "top1", 0.75, lower=False, rate=50_000.0),
        Measured("good", "a/good", "top1", 0.98, lower=False, rate=40.0),
        Measured("words", "a/words", "wer", 0.02, lower=True, rate=41.0),
    ]
    chart = speed_chart("vision", models)
    assert chart is not None
    by_name = {point.label: point for point in chart.points}
    assert by_name["fast"].x > by_name["good"].x
    assert by_name["fast"].y > by_name["good"].y, "pixels from the top"
    assert by_name["words"].y == by_name["good"].y, "of an error rate, what is left to 1"
    assert abs(by_name["words"].label_y - by_name["good"].label_y) >= 14, "labels do not overlap"
    assert all(0 <= point.x <= 100 and TOP <= point.y <= BOTTOM for point in chart.points)
    assert [tick.label for tick in chart.across] == ["10", "100", "1,000", "10,000", "100,000"]
    assert speed_chart("vision", models[:1]) is None


def test_the_site_shows_checks_below_their_models(tmp_path: Path, samples: Samples) -> None:
    make_zoo(tmp_path)
    build_site(tmp_path, tmp_path / "site.html", [samples.check()])
    page = Page((tmp_path / "site.html").read_text(encoding="utf-8"))
    assert "case-digits" in {one.get("id") for one in page.all("details")}
    assert page.all("img")


def test_the_site_shows_inconclusive_comparisons(tmp_path: Path) -> None:
    make_zoo(tmp_path)
    path = tmp_path / "example/classification/digits/numerics.yaml"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("verdict: PASS", "verdict: INCONCLUSIVE"), encoding="utf-8")
    build_site(tmp_path, tmp_path / "site.html")
    text = (tmp_path / "site.html").read_text(encoding="utf-8").partition("<body>")[2]
    assert text.count("badge v-open") == 1


def test_the_site_of_this_repository_and_of_none(tmp_path: Path) -> None:
    build_site(ROOT, tmp_path / "site.html")
    text = (tmp_path / "site.html").read_text(encoding="utf-8")
    assert "example/classification/digits" in text
    build_site(tmp_path, tmp_path / "empty.html")
    assert "The zoo contains no models" in (tmp_path / "empty.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["numerics.yaml", "perf.yaml"])
@pytest.mark.parametrize(
    "content",
    [
        "a: [", "- a", "schema_version: 2", "{schema_version: 1, metrics: {}, figures: {}}", "\x00",
        "{schema_version: 1, metrics: [1], figures: [1]}", "{schema_version: 1, metrics: [{}], figures: [{}]}",
        "{schema_version: 1, metrics: [], figures: [], versions: 3}",
    ],
)  # fmt: skip
def test_invalid_scorecard_error_has_file(name: str, content: str, tmp_path: Path) -> None:
    make_zoo(tmp_path)
    folder = tmp_path / "example/classification/resnet"
    (folder / name).write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        build_site(tmp_path, tmp_path / "site.html")
    assert len(str(caught.value).splitlines()) == 1
    assert str(folder) in str(caught.value)
    assert name in str(caught.value)
    assert "--update" in str(caught.value)


def test_hostile_scorecards_are_escaped_in_html(tmp_path: Path) -> None:
    folder = tmp_path / "example/x/y"
    folder.mkdir(parents=True)
    scorecards(folder, HOSTILE)
    data = yaml.safe_load((folder / "numerics.yaml").read_text(encoding="utf-8"))
    hurt = data | {"commit": HOSTILE, "date": HOSTILE, "written_by": HOSTILE, "versions": {HOSTILE: HOSTILE}}
    (folder / "numerics.yaml").write_text(yaml.safe_dump(hurt), encoding="utf-8")
    (folder / "README.md").write_text(f"# {HOSTILE}\n", encoding="utf-8")
    build_site(tmp_path, tmp_path / "site.html")
    page = Page((tmp_path / "site.html").read_text(encoding="utf-8"))
    assert len(page.scripts) == 1
    assert not page.all("img")


# ------------------------------------------------------------------------------------------------------------- layout

MEASURE = """<script>addEventListener("load", () => {
  const width = document.documentElement.clientWidth;
  const inside = (one) => one.closest(".scroll, pre, svg, caption, .skip, .word");
  const wide = [...document.body.querySelectorAll("*")].filter((one) => {
    const box = one.getBoundingClientRect();
    return box.width > 0 && (box.right > width + 1 || box.left < -1) && !inside(one);
  }).map((one) => `${one.tagName}.${one.className}`);
  const shown = [...document.querySelectorAll(".scroll")].filter((one) => one.checkVisibility());
  const cut = shown.map((one) => one.scrollWidth - one.clientWidth).filter((more) => more > 1);
  const rest = document.querySelector("details.rest");
  const found = {width, scroll: document.documentElement.scrollWidth, wide, cut, open: rest && rest.open};
  parent.postMessage(found, "*");
});</script>"""
FRAME = """<!doctype html><iframe src="page.html" width="{width}" height="900" style="border: 0"></iframe>
<pre></pre><script>addEventListener("message", ({{data}}) => {{
  document.querySelector("pre").textContent = JSON.stringify(data);
}});</script>"""


def measured(html: str, width: int, folder: Path) -> dict[str, object]:
    """Return the widths of a page in a frame: of the view, of the content, and the elements beyond the view."""
    assert CHROMIUM is not None
    html = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", html)
    (folder / "page.html").write_text(html.replace("</body>", f"{MEASURE}</body>"), encoding="utf-8")
    (folder / "frame.html").write_text(FRAME.format(width=width), encoding="utf-8")
    flags = ("--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=3000", "--window-size=1400,1000")
    command = [
        CHROMIUM,
        *flags,
        f"--user-data-dir={folder / 'profile'}",
        "--dump-dom",
        (folder / "frame.html").as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    found = re.search(r"<pre>(\{.*?\})</pre>", done.stdout)
    assert found is not None, done.stdout[-2000:]
    return dict(json.loads(unescape(found[1])))


def tool_page() -> str:
    """Return a page of a tool with a chart, bad rows, many rows and more columns than fit."""
    names = [f"/encoder/layers.{i}/self_attn/a_long_name_of_a_node_{i}/MatMul_output" for i in range(120)]
    columns = [Column("name", "node"), Column("op", "operator", spare=1)]
    columns += [Column(f"c{i}", f"a column {i}", True, spare=i) for i in range(2, 28)]
    rows = [{"name": name, "op": "MatMul", **{f"c{k}": 1.2345e-5 * k for k in range(2, 28)}} for name in names]
    values = [None if i % 7 == 0 else 0.0 if i % 5 == 0 else 1e-3 * (1 + i % 11) for i in range(120)]
    chart = Chart("diff2 along the graph", "node", [Line("accumulated", "red", values)], 1e-2, 70, names)
    return html_text(ToolReport("teco x", names[0], names[1], columns, rows, frozenset([70]), charts=[chart]))


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed: apt-get install chromium")
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("name", ["site", "check", "tool"])
def test_nothing_is_wider_than_the_view(name: str, width: int, tmp_path: Path, samples: Samples) -> None:
    if name == "site":
        build_site(ROOT, tmp_path / "site.html")
        html = (tmp_path / "site.html").read_text(encoding="utf-8")
    else:
        html = html_page(samples.check()) if name == "check" else tool_page()
    found = measured(html, width, tmp_path)
    assert found["scroll"] == found["width"]
    assert found["wide"] == []
    if width == 1280:
        assert found["cut"] == [], "columns of a table, by so many pixels"
    if name == "tool":
        assert found["open"] == (width == 1280), "on a phone all rows are shown on demand"
