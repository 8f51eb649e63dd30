"""Pass for ShuffleNet: channel shuffles as gathers, and gathers as part of what reads them."""
