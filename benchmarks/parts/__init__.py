"""Shared parts of the benchmarks: models, images, peers, figures; the scripts are in the parent folder."""
