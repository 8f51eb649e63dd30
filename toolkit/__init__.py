"""Tools around the zoo, as functions; ``cli.py`` is the ``teco`` command."""
