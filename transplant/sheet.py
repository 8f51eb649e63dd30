"""A sheet of text and numbers as a minimal ``.xlsx`` file (ECMA-376)."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence
from xml.sax.saxutils import escape

from tecoinfer_modelzoo.formatting import clean

_MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_TYPE = "application/vnd.openxmlformats-officedocument.spreadsheetml"
_HEAD = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
_MOST = 32767
"""Maximum characters of a cell."""


def sheet(rows: Sequence[Sequence[str | int]], title: str) -> bytes:
    """Return rows as a file with one sheet."""
    files = {
        "[Content_Types].xml": f'<Types xmlns="{_PACKAGE}/content-types">'
        '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        f'<Override PartName="/xl/workbook.xml" ContentType="{_TYPE}.sheet.main+xml"/>'
        f'<Override PartName="/xl/worksheets/sheet1.xml" ContentType="{_TYPE}.worksheet+xml"/></Types>',
        "_rels/.rels": _relation("officeDocument", "xl/workbook.xml"),
        "xl/workbook.xml": f'<workbook xmlns="{_MAIN}" xmlns:r="{_OFFICE}"><sheets>'
        f'<sheet name="{escape(title)}" sheetId="1" r:id="rId1"/></sheets></workbook>',
        "xl/_rels/workbook.xml.rels": _relation("worksheet", "worksheets/sheet1.xml"),
        "xl/worksheets/sheet1.xml": f'<worksheet xmlns="{_MAIN}"><sheetData>'
        + "".join(_row(number, row) for number, row in enumerate(rows, 1))
        + "</sheetData></worksheet>",
    }
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), _HEAD + text)
    return content.getvalue()


def _relation(kind: str, target: str) -> str:
    inner = f'<Relationship Id="rId1" Type="{_OFFICE}/{kind}" Target="{target}"/>'
    return f'<Relationships xmlns="{_PACKAGE}/relationships">{inner}</Relationships>'


def _row(number: int, cells: Sequence[str | int]) -> str:
    return f'<row r="{number}">{"".join(_cell(number, index, value) for index, value in enumerate(cells))}</row>'


def _cell(number: int, index: int, value: str | int) -> str:
    place = f"{chr(ord('A') + index)}{number}"
    if isinstance(value, int):
        return f'<c r="{place}"><v>{value}</v></c>'
    text = escape(clean(value)[:_MOST])
    return f'<c r="{place}" t="inlineStr"><is><t xml:space="preserve">{text}</t></is></c>'
