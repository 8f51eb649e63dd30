"""Engines of the vendors, one file each; :mod:`engine.registry` names them."""
