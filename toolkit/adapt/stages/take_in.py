"""Take the model in: its metadata, publisher and licence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tecoinfer_modelzoo.formatting import plural
from toolkit.adapt.sources import find_source
from toolkit.adapt.stage import Stage
from toolkit.adapt.work import NOTED, Outcome, Work


class TakeIn(Stage):
    """Bring the model in, by its source."""

    name, title = "take_in", "take in"

    def inputs(self, work: Work) -> Mapping[str, Any]:
        """What the source reads."""
        return find_source(work.request.model).inputs(work)

    def run(self, work: Work) -> Outcome:
        """Read what is known before the graph is."""
        taken = find_source(work.request.model).take(work)
        licence = f"licence {taken.licence} ({taken.licence_from})" if taken.licence else "licence not known"
        words = [taken.kind, licence, f"from {taken.publisher}" if taken.publisher else "publisher not known"]
        words += ["random weights: answers mean nothing"] if taken.random else []
        if taken.rewritten:
            words.append(f"{plural(len(taken.rewritten), 'node')} rewritten, as the card lacks the operators")
        words += taken.notes
        return Outcome("; ".join(words), taken.as_json(), notes=taken.notes, status=NOTED if taken.notes else "done")
