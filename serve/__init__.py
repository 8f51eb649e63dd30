"""Models on the network: ``teco serve`` (docs/how-to/serving.md).

``server`` runs the protocols in one asyncio process. ``repository`` holds the models; each has a queue that forms
batches (``batching``), and engines in processes of their own or in replicas on a Ray cluster (``engines``).
``sequences`` holds the states of streams. ``protocol`` has the data types and messages of the Open Inference Protocol,
which ``http`` and ``grpc_server`` speak.
"""
