"""``python -m tecoexec``: the command line of :mod:`tecoexec.cli`."""

from tecoexec.cli import main

if __name__ == "__main__":
    main()
