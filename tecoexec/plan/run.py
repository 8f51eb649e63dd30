"""A plan from the parsed arguments to the written results."""

from __future__ import annotations

import argparse
import sys

from engine import ConfigError
from tecoexec.plan import results
from tecoexec.plan.curve import Curve, curve_of
from tecoexec.plan.search import Goal, best_plan, load_curve, policies, why_not
from tecoexec.plan.settings import PlanSettings, plan_settings
from tecoexec.request import Request
from tecoinfer_modelzoo.files import write_file
from utils.pipeline.cli import warn
from utils.pipeline.report.report import write_json

UNREACHABLE = 1
"""Exit code of a plan that no number of cards reaches."""


def run(args: argparse.Namespace, request: Request) -> int:
    """Plan, print and write the results; return 0, or 1 if a rate is not reachable, with one line on standard error.

    Raises:
        ConfigError: a flag or the file of arrivals is invalid, or a result cannot be written.
        TecoInferError: the model is invalid, or does not fit the card.
    """
    settings = plan_settings(args)
    curve = curve_of(request, settings.largest)
    planned = [_planned(curve, settings, rate) for rate in settings.rates]
    if any(one.plan is not None for one in planned) or settings.swept:
        sys.stdout.write("\n".join(results.lines(request, settings, curve, planned)) + "\n")
    _write(args, request, settings, curve, planned)
    for one in planned:
        if one.plan is None:
            warn(f"not reachable: {one.goal.rate:g} requests/s: {one.reason}")
    return UNREACHABLE if any(one.plan is None for one in planned) else 0


def _planned(curve: Curve, settings: PlanSettings, rate: float) -> results.Planned:
    goal = Goal(rate, settings.bound, settings.most_cards)
    plan = best_plan(curve, settings.arrivals, goal, policies(curve, settings.bound, settings.delay))
    if plan is None:
        return results.Planned(goal, None, why_not(curve, goal), ())
    return results.Planned(goal, plan, "", load_curve(curve, settings.arrivals, plan))


def _write(
    args: argparse.Namespace,
    request: Request,
    settings: PlanSettings,
    curve: Curve,
    planned: list[results.Planned],
) -> None:
    if args.json is not None:
        write_json(results.to_dict(request, settings, curve, planned), args.json)
    if args.html is not None:
        from tecoexec.plan.page import page

        try:
            write_file(args.html, page(request, settings, curve, planned).encode("utf-8", "backslashreplace"))
        except OSError as error:
            raise ConfigError(f"--html {args.html} cannot be written: {error.strerror}; choose another file") from error
    reached = [one for one in planned if one.plan is not None]
    if args.plot is not None and reached:
        from tecoexec.plot import plot_loads

        curves = {f"{one.goal.rate:g} requests/s": one.loads for one in reached}
        label = " (simulated)" if curve.simulated else ""
        title = f"{request.model.name}, planned on target {request.target}{label}"
        plot_loads(args.plot, curves, settings.bound, title)
