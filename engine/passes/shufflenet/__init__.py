"""Pass for ShuffleNet: channel shuffles become gathers, which are merged into their readers."""
