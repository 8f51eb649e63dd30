"""Whether a training script does on a device what it does on the CPU: its runs, and what is made of them."""
