"""Redirects to ``sdaa`` what a script asks of CUDA; switched on by ``torch_sdaa.contrib.transfer_to_sdaa``."""
