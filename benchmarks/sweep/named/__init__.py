"""Networks that the zoo exports by name."""
