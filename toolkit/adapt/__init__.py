"""``teco adapt``: from a model and its data to a checked folder of the zoo, in resumable stages."""
