"""The stages of ``teco adapt``, one module each; :data:`toolkit.adapt.table.STAGES` lists them."""
