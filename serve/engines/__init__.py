"""Engines in processes of their own: ``python -m serve.engines FD`` opens one model and answers calls over a socket.

A crash of native code ends only that process. The server's side is :mod:`serve.batching.process`.
"""
