"""The commands of ``teco``: one module each, with ``main(argv) -> exit code``."""
