"""Dumps of trainings written by ``torch_sdaa.utils.dumper``: comparison, replay of one call, conversion to .npy
files.
"""
