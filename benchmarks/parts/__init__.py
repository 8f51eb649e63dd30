"""What benchmarks share or start: models, images, peers, figures; people run the scripts one folder up."""
