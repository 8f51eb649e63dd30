"""Dumps of trainings by ``torch_sdaa.utils.dumper``: comparison, replay of one call, conversion to .npy files."""
