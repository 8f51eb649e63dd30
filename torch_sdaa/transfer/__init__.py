"""Redirection of CUDA's names to ``sdaa``, enabled by ``torch_sdaa.contrib.transfer_to_sdaa``."""
