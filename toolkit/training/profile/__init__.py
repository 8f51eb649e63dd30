"""Where a training's time goes, which of the four classic bottlenecks it has, and what helps."""
