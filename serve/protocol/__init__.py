"""Data types and messages of the Open Inference Protocol, version 2."""
