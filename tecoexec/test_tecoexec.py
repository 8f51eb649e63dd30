"""The configured sweep as a test: pytest -vs -k resnet50 test_tecoexec.py.

Every case at every batch is a test. Logs, table, CSV, JSON and plots are written to ``test_tecoexec_logs/<date>/`` next
to this file. The configuration is ``testcase_configs/tecoexec_config.yaml``, else ``tecoexec_config.yaml``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest

from tecoexec.config import Sweep, load_cases
from tecoexec.point import Point
from tecoexec.sweep import make_folder, run_point, table, write_log, write_results

HERE = Path(__file__).resolve().parent
CONFIG = next(HERE.glob("testcase_configs/tecoexec_config.yaml"), HERE / "tecoexec_config.yaml")
RUNS = [pytest.param(case, batch, id=f"{case.name}-{batch}") for case in load_cases(CONFIG) for batch in case.batches]


@pytest.fixture(scope="module")
def folder() -> Path:
    """Return the folder of today's logs."""
    return make_folder(HERE / "test_tecoexec_logs" / date.today().isoformat())


@pytest.fixture(scope="module")
def points(folder: Path) -> Iterator[list[Point]]:
    """Collect the points of the sweep, and write its results at the end."""
    collected: list[Point] = []
    yield collected
    if collected:
        sys.stdout.write("\n" + table(collected) + "\n".join(write_results(collected, folder)) + "\n")


@pytest.mark.parametrize(("case", "batch"), RUNS)
def test_tecoexec(case: Sweep, batch: int, folder: Path, points: list[Point]) -> None:
    """Run one case at one batch."""
    if case.missing:
        pytest.skip(case.missing)
    point, text = run_point(case, batch)
    write_log(folder, case, batch, text)
    sys.stdout.write("\n" + text)
    points.append(point)
