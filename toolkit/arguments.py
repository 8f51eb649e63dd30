"""The argument parser of the ``teco`` commands."""

from __future__ import annotations

import argparse
from typing import NoReturn

from engine import ConfigError, add_version


class Parser(argparse.ArgumentParser):
    """Says what is wrong with the arguments in one line, as for every other error, and takes no abbreviated flags."""

    def __init__(self, prog: str, description: str | None, epilog: str | None = None) -> None:
        shape = argparse.RawDescriptionHelpFormatter
        super().__init__(prog, None, description, epilog, formatter_class=shape, allow_abbrev=False)
        add_version(self)

    def error(self, message: str) -> NoReturn:
        """Raise the message as a :class:`ConfigError`."""
        raise ConfigError(f"{message} (see {self.prog} --help)")
