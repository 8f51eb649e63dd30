"""Which ATen operators a training needs, forward and backward, and how the card as a PyTorch device serves them."""
