"""Dumps of trainings, as ``torch_sdaa.utils.dumper`` writes them: two compared, one call repeated, arrays taken out."""
