"""Where a model's time goes: per node, against the machine's roof, with what would make it less."""
