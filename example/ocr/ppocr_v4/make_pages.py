"""Draw the sample pages and write their labels: English and Chinese lines, straight, rotated, curved, small, none."""

import argparse
import json
import sys
from pathlib import Path

from PIL import Image, ImageFont

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from engine import add_version
from utils.datasets.synthetic.text_pages import Page, Paper, column
from utils.fonts import MEMBER, PACKAGE

HERE = Path(__file__).resolve().parent

ENGLISH = (
    "A page is found before it is read.",
    "The detector marks where the lines are,",
    "the classifier turns those on their heads,",
    "and the recogniser names the characters.",
    "Invoice No. 20482, 17 March 2025",
    "Total: 1,284.50 EUR (incl. 19 % VAT)",
    "Tel. +49 30 901820, room B-417",
    "Keep this receipt for your records.",
    "Shake well before use; store below 25 C.",
    "Platform 9, departure 14:35, coach 21",
    "Lost keys may be claimed at the front desk.",
    "Bread 2.40  Milk 1.15  Apples 3.99",
)

CHINESE = (
    "先找到页面上的文字行",
    "再判断每一行的方向",
    "最后识别其中的字符",
    "今天的天气晴朗无风",
    "请在此处签字并注明日期",
    "图书馆周一至周五开放",
    "会议室在三楼左手边",
    "本店支持现金和刷卡付款",
    "前方道路施工请绕行",
    "南京路步行街欢迎您",
)

MIXED = ("型号：TX-200 共 36 台", "电话：010-62788888", "单价 128.50 元，合计 4626.00 元", "地址：北京市海淀区 18 号")


def straight(texts: tuple[str, ...], sizes: tuple[int, ...], font_file: Path, seed: int) -> Page:
    """Return a page with lines below one another, in several sizes."""
    paper, y = Paper((880, 620), seed=seed), 40.0
    for i, text in enumerate(texts):
        font = ImageFont.truetype(font_file, sizes[i % len(sizes)])
        _, height = paper.line(text, font, (50 + 12 * (i % 3), y))
        y += height + 34
    return paper.page()


def columns(font_file: Path) -> Page:
    """Return a page with a heading above two columns."""
    paper, font = Paper((960, 640), seed=3), ImageFont.truetype(font_file, 24)
    paper.line("HOUSE RULES 住户须知", ImageFont.truetype(font_file, 40), (260, 36))
    column(paper, ENGLISH[4:10], ImageFont.truetype(font_file, 21), (40, 130), 70)
    column(paper, CHINESE[3:9], font, (570, 130), 70)
    return paper.page()


def turned(font_file: Path) -> Page:
    """Return a page with rotated lines, one of them vertical."""
    paper, font = Paper((1000, 900), seed=4), ImageFont.truetype(font_file, 30)
    for text, place, angle in (
        (ENGLISH[0], (80, 50), 4),
        (ENGLISH[5], (80, 300), -12),
        (CHINESE[4], (80, 360), 20),
        (ENGLISH[9], (70, 860), -30),
        (CHINESE[7], (600, 380), 35),
        (ENGLISH[6], (950, 90), 90),
        (CHINESE[9], (600, 850), -8),
    ):
        paper.line(text, font, place, angle=angle)
    return paper.page()


def upside_down(font_file: Path) -> Page:
    """Return a page that is upside down."""
    paper, font = Paper((900, 560), seed=5), ImageFont.truetype(font_file, 30)
    for i, text in enumerate((*ENGLISH[1:4], *CHINESE[1:4], ENGLISH[10])):
        paper.line(text, font, (840, 520 - 68 * i), angle=180)
    return paper.page()


def bent(font_file: Path) -> Page:
    """Return a page with lines along arcs."""
    paper, font = Paper((1100, 900), seed=6), ImageFont.truetype(font_file, 36)
    paper.arc("NORTHERN HARBOUR SEAFOOD MARKET", font, (540, 620), 480)
    paper.arc("春江花月夜茶馆欢迎您的光临", font, (540, 700), 330)
    paper.arc("OPEN EVERY DAY 10-22", font, (540, 720), 210)
    paper.line("Gate 4", font, (480, 800))
    return paper.page()


def large(font_file: Path) -> Page:
    """Return a large page in small print."""
    paper, font = Paper((2480, 1754), seed=7), ImageFont.truetype(font_file, 20)
    texts = [*ENGLISH, *CHINESE, *MIXED]
    for i in range(3):
        column(paper, [*texts[i * 5 :], *texts[: i * 5]], font, (120 + 790 * i, 80), 62)
    return paper.page(grain=2.0)


def pages(font_file: Path) -> dict[str, Page]:
    """Return all pages by file name."""
    return {
        "english": straight(ENGLISH[:9], (22, 28, 34), font_file, 1),
        "chinese": straight((*CHINESE[:6], *MIXED), (22, 28, 34), font_file, 2),
        "columns": columns(font_file),
        "turned": turned(font_file),
        "upside_down": upside_down(font_file),
        "bent": bent(font_file),
        "large": large(font_file),
        "empty": Paper((640, 480), seed=8).page(),
    }


def main() -> int:
    """Draw the pages and write ``Label.txt`` beside them."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_version(parser)
    parser.add_argument("--out", type=Path, default=HERE / "data", help="folder of the pages")
    parser.add_argument("--font", type=Path, help=f"font file with Chinese; left out: package {PACKAGE}")
    args = parser.parse_args()
    if args.font is None:
        from utils.fetch import fetched

        args.font = fetched(PACKAGE) / MEMBER
    args.out.mkdir(parents=True, exist_ok=True)
    rows = []
    for name, page in pages(args.font).items():
        Image.fromarray(page.pixels).save(args.out / f"{name}.jpg", quality=85)
        lines = [{"transcription": one.text, "points": one.outline.round(1).tolist()} for one in page.lines]
        rows.append(f"{name}.jpg\t{json.dumps(lines, ensure_ascii=False)}\n")
    (args.out / "Label.txt").write_text("".join(rows), encoding="utf-8")
    print(f"{len(rows)} pages in {args.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
