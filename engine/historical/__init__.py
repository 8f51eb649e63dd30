"""What the historical faces (:mod:`engine.tecoinfer_pytorch`, :mod:`engine.tecoinfer_paddle`) are made of."""
