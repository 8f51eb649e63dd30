"""Time of each node of a model, compared with the roofline, with bottlenecks and fixes."""
