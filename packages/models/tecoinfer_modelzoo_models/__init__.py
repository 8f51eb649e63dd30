"""Models of the zoo, as files: ``example/DOMAIN/MODEL``, ``model_config/model.yaml`` and ``docs/data.yaml``.

Found by the entry point of the group ``tecoinfer.zoos``. LICENSES.md in this folder lists the licences of the data and
weights; the code is under Apache-2.0.
"""
