"""Tests of the HTML pages: content, escaping, and behaviour in a browser."""

from __future__ import annotations

import functools
import http.server
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from report_samples import HOSTILE, Page, Samples, make_zoo, visible

from model_config.reports import build_site, html_page, write_text
from model_config.reports.page import drawn_pairs
from model_config.results import CaseResult, CheckResult
from utils.pages.page import TEMPLATES

CHROMIUM = shutil.which("chromium")
browser = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed: apt-get install chromium")


@pytest.fixture
def samples(tmp_path: Path) -> Samples:
    return Samples(tmp_path)


def test_page_is_self_contained(samples: Samples) -> None:
    page = Page(html_page(samples.check()))
    assert not page.all("link")
    assert not page.all("iframe")
    assert (
        page.scripts == [(TEMPLATES / "page.js").read_text(encoding="utf-8").strip() + "\n"] or len(page.scripts) == 1
    )
    assert all(image["src"].startswith("data:image/webp;base64,") for image in page.all("img"))
    for _, attributes in page.tags:
        assert not {"style", "srcset", "action"} & set(attributes)
        assert not any(name.startswith("on") for name in attributes)
        assert attributes.get("href", "#").startswith("#")
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {link["href"][1:] for link in page.all("a")} <= set(ids)


def test_page_has_all_results(samples: Samples) -> None:
    text = html_page(samples.check())
    for piece in (
        "1e0c0dd-dirty", "onnxruntime", "digits_float16_dyn.onnx: written", "step 6/6", "412 MiB", "图片 0.png",
        "contrib/example/detection/yolov5/README.md:12", "rename it to", "python example_valid.py --ckpt m_dyn.onnx",
        "ValueError: shapes (4, 3) and (2, 4) not aligned", "000000000139.jpg, 000000000285.jpg and 2898 more",
        "the first 360 samples of the data", "random weights: accuracy is not judged",
        "tolerance ±0.1 %", "≥ 1.2×",
    ):  # fmt: skip
        assert piece.replace("'", "&#39;") in re.sub(r"</code>|<code>", "", text), piece
    page = Page(text)
    assert len(page.all("img")) == 6 + 6 + 2, "six at most of each of the two cases that draw, and a pair that differs"
    assert all(max(int(image["width"]), int(image["height"])) <= 480 for image in page.all("img"))
    assert not re.search("\x1b|\r", text)


def test_predictions_that_differ_are_side_by_side(samples: Samples) -> None:
    case = samples.broken()
    pairs = drawn_pairs(case)
    assert [pair.sample.name for pair in pairs.different] == ["a.jpg", "b.txt:7"]
    assert pairs.alike == 1
    images = [image for pair in pairs.different for image in (pair.baseline, pair.target)]
    assert [image is not None and max(image.width, image.height) == 320 for image in images] == [True] * 2 + [False] * 2
    text = html_page(CheckResult((case,)))
    block = text[text.index('class="differ"') : text.index("<h4>Speed</h4>")]
    order = [block.index(piece) for piece in ("a.jpg", "a cat 0.52", "a dog 0.51", "b.txt:7", "a text", "negative")]
    assert order == sorted(order)
    assert "the same" not in block
    assert text.index("<h4>Accuracy</h4>") < text.index('class="differ"')
    assert 'class="differ"' not in html_page(CheckResult((replace(case, drawn=()),)))


def test_a_check_begins_with_what_failed(samples: Samples) -> None:
    check = samples.check()
    text = html_page(check)
    section = re.search(r"<main.*?<section[^>]*>(.*?)</section>", text, re.DOTALL)
    assert section is not None
    links = re.findall(r'<a href="#case-[^"]*"><strong>(.*?)</strong>', section[1])
    assert links == ["yolov5s", "skeleton", "mobilenet_v2"], "failed ones before undecided ones"
    assert "1 failed" not in visible(section[1])
    assert "2 failed, 1 undecided" in visible(section[1])
    assert "shapes (4, 3) and (2, 4) not aligned" in visible(section[1])
    order = re.findall(r'<details class="case [^"]*" id="case-([^"]*)"', text)
    assert order[:3] == ["yolov5s", "skeleton", "mobilenet_5f_v2"]
    passed = CheckResult((samples.good(),))
    assert 'id="failed"' not in html_page(passed)


def test_a_failed_case_begins_with_its_comparison(samples: Samples) -> None:
    case = replace(samples.broken(), notes=("a note that explains",), partial="the first 9 samples of the data")
    text = html_page(CheckResult((case,)))
    inside = text[text.index('<div class="inside">') :]
    assert inside.index("mAP 0.3671") < inside.index("Evaluated on") < inside.index("a note that explains")


def test_long_logs_are_cut_with_a_note(samples: Samples) -> None:
    log = samples.log("long", "start of it\n" + "a line of a log\n" * 30_000 + "end of it\n")
    step = replace(samples.step("a", "valid", reason="failed"), stderr=log)
    text = html_page(CheckResult((CaseResult("a", "b", steps=(step,)),)))
    assert "end of it" in text
    assert "start of it" not in text
    assert re.search(r"The first \d+ bytes are left out", text)
    assert len(text) < 150_000


@pytest.mark.parametrize("check", [CheckResult(()), CheckResult((), ("model.yaml: is not YAML",), interrupted=True)])
def test_a_check_without_cases_has_a_page(check: CheckResult) -> None:
    text = html_page(check)
    Page(text)
    assert "No case was checked" in text
    assert all(problem in text for problem in check.problems)
    assert ("interrupted" in text) == check.interrupted


def test_missing_logs_and_images_are_left_out(samples: Samples, tmp_path: Path) -> None:
    gone = replace(samples.step("a", "single"), stdout=tmp_path / "no", images=(tmp_path / "no.png", tmp_path))
    text = html_page(CheckResult((CaseResult("a", "b", steps=(gone,)),)))
    assert text.count("cannot be read") == 2


def test_hostile_texts_are_escaped_in_html(samples: Samples) -> None:
    check = CheckResult((samples.hostile(),), (HOSTILE,), commit=HOSTILE, date=HOSTILE, environment={HOSTILE: HOSTILE})
    text = html_page(check)
    page = Page(text)
    assert len(page.scripts) == 1
    assert not page.all("img")
    assert not re.search("[\x00\x1b\u202e]", text)


def test_similar_names_have_distinct_anchors() -> None:
    names = ("a b", "a_20_b", "a.b", "a_b", "A_B", "模")
    page = Page(html_page(CheckResult(tuple(CaseResult(name, "x") for name in names))))
    ids = [one["id"] for one in page.all("details") if "case" in one.get("class", "")]
    assert len(set(ids)) == len(names)


def test_text_contrast_is_at_least_that_of_wcag_aa() -> None:
    """WCAG 2.2, success criterion 1.4.3: 4.5 to 1."""
    css = (TEMPLATES / "style.css").read_text(encoding="utf-8")
    schemes = re.findall(r":root \{(.*?)\}", css, re.DOTALL)
    assert len(schemes) == 2
    pairs = [(name, ground) for name in ("text", "muted", "accent", "open") for ground in ("ground", "card", "sunk")]
    pairs += [(name, f"{name}-soft") for name in ("pass", "fail", "open", "none")]
    for scheme in schemes:
        colours = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", scheme))
        for one, other in pairs:
            assert contrast(colours[one], colours[other]) >= 4.5, (one, other)


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    """Return the relative luminance as WCAG 2.2 defines it."""
    parts = [int(colour[index : index + 2], 16) / 255 for index in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


# ----------------------------------------------------------------------------------------------------------- browser


def dom(url: str, profile: Path) -> str:
    """Return the page's elements after its script ran, from a browser without network access."""
    assert CHROMIUM is not None
    flags = ("--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=2000", "--no-first-run")
    command = [CHROMIUM, *flags, f"--user-data-dir={profile}", "--dump-dom", url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout


def shown_rows(html: str) -> list[str]:
    rows = re.findall(r"<tr role=\"row\"( [^>]*)>\s*<th scope=\"row\"[^>]*><a [^>]*>(.*?)</a>", html, re.DOTALL)
    return [name for attributes, name in rows if "hidden" not in attributes]


@pytest.fixture
def page(samples: Samples, tmp_path: Path) -> str:
    check = samples.check()
    write_text(html_page(replace(check, cases=(*check.cases, samples.hostile()))), tmp_path / "模型 report.html")
    return (tmp_path / "模型 report.html").as_uri()


@pytest.mark.slow
@browser
def test_a_browser_filters_and_sorts_by_the_hash(page: str, tmp_path: Path) -> None:
    html = dom(f"{page}#q=YOLO", tmp_path / "profile")
    assert shown_rows(html) == ["yolov5s"]
    assert "1 of 7 cases" in html
    assert shown_rows(dom(f"{page}#verdict=PASS+(part)", tmp_path / "profile")) == ["digits"]
    assert re.search(r'id="case-digits" hidden', html)
    html = dom(f"{page}#verdict=PASS&sort=10d", tmp_path / "profile")
    assert shown_rows(html) == ["中文模型", "digits", "resnet18_random"], "the longest first"
    assert "pwned" not in str(re.findall("<title>(.*?)</title>", html))


@browser
def test_a_browser_opens_the_case_of_a_link(page: str, tmp_path: Path) -> None:
    html = dom(f"{page}#case-digits", tmp_path / "profile")
    assert re.search(r'<details [^>]*id="case-digits"[^>]* open', html)
    assert len(shown_rows(html)) == 7
    assert "7 cases" in html


class Recorder(http.server.SimpleHTTPRequestHandler):
    """HTTP handler that serves a folder and records the requests."""

    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        super().do_GET()

    def log_message(self, *args: object) -> None:
        return


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[str, list[str]]]:
    handler = type("Handler", (Recorder,), {"asked": []})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(handler, directory=str(tmp_path)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", handler.asked
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.slow
@browser
def test_browser_requests_only_the_page(samples: Samples, tmp_path: Path, served: tuple[str, list[str]]) -> None:
    """Also not the image `x` of the injected texts."""
    address, asked = served
    make_zoo(tmp_path)
    build_site(tmp_path, tmp_path / "site.html", [CheckResult((samples.good(), samples.hostile()))])
    write_text(html_page(CheckResult((samples.hostile(),))), tmp_path / "check.html")
    html = dom(f"{address}/site.html#domain=nlp", tmp_path / "profile")
    assert re.findall(r'<article class="card model"(?![^>]* hidden)[^>]* data-text="(\S+)', html) == ["中文模型"]
    assert re.search(r'<section class="domain" [^>]*hidden', html), "domains without a card that fits"
    dom(f"{address}/check.html", tmp_path / "profile")
    assert set(asked) - {"/favicon.ico"} == {"/site.html", "/check.html"}


@browser
def test_security_policy_blocks_injected_script(samples: Samples, tmp_path: Path) -> None:
    """Even without escaping, the browser must run only the page's own script."""
    text = html_page(samples.check()).replace("</main>", "<script>document.title='pwned'</script></main>")
    write_text(text, tmp_path / "bad.html")
    html = dom((tmp_path / "bad.html").as_uri() + "#q=digits", tmp_path / "profile")
    assert "<title>pwned" not in html
    assert shown_rows(html) == ["digits"]
