"""Extensions of the device; :mod:`torch_sdaa.contrib.transfer_to_sdaa` runs CUDA scripts."""
