"""Search for the cause of a failed accuracy gate: nodes that must stay float32, or mistakes other than precision."""
