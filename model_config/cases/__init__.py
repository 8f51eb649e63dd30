"""Cases of the check: their definition in ``model.yaml``, and the files they depend on."""
