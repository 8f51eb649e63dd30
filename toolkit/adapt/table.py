"""The stages in the order in which they run; a stage is added by a file and a row."""

from __future__ import annotations

from collections.abc import Sequence

from toolkit.adapt.stage import Stage
from toolkit.adapt.stages.card import OnCard
from toolkit.adapt.stages.check import Check
from toolkit.adapt.stages.data import TakeData
from toolkit.adapt.stages.document import Document
from toolkit.adapt.stages.export import ExportForms
from toolkit.adapt.stages.onnx import Baseline
from toolkit.adapt.stages.operators import CheckOperators
from toolkit.adapt.stages.page import Page
from toolkit.adapt.stages.passes import SuggestPasses
from toolkit.adapt.stages.scaffold import Scaffold
from toolkit.adapt.stages.sweep import SweepBatches
from toolkit.adapt.stages.take_in import TakeIn
from toolkit.adapt.stages.targets import OtherTargets
from toolkit.adapt.stages.task import ChooseTask

STAGES: Sequence[Stage] = (
    TakeIn(),
    ExportForms(),
    ChooseTask(),
    TakeData(),
    CheckOperators(),
    Scaffold(),
    Baseline(),
    OnCard(),
    OtherTargets(),
    SuggestPasses(),
    SweepBatches(),
    Document(),
    Check(),
    Page(),
)
"""Every stage."""
