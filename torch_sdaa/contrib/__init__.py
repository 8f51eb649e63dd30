"""What moves scripts onto the device: see :mod:`torch_sdaa.contrib.transfer_to_sdaa`."""
