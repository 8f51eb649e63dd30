"""From a failed accuracy gate to the nodes that must stay float32, and to the mistakes that are not precision."""
