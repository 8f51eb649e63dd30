"""Parts of the historical interfaces :mod:`engine.tecoinfer_pytorch` and :mod:`engine.tecoinfer_paddle`."""
