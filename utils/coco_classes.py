"""The 80 classes of COCO's detection task and their category ids, which run from 1 to 90 with gaps."""

from __future__ import annotations

_TEXT = """
    person, bicycle, car, motorcycle, airplane, bus, train, truck, boat, traffic light, fire hydrant, stop sign,
    parking meter, bench, bird, cat, dog, horse, sheep, cow, elephant, bear, zebra, giraffe, backpack, umbrella,
    handbag, tie, suitcase, frisbee, skis, snowboard, sports ball, kite, baseball bat, baseball glove, skateboard,
    surfboard, tennis racket, bottle, wine glass, cup, fork, knife, spoon, bowl, banana, apple, sandwich, orange,
    broccoli, carrot, hot dog, pizza, donut, cake, chair, couch, potted plant, bed, dining table, toilet, tv, laptop,
    mouse, remote, keyboard, cell phone, microwave, oven, toaster, sink, refrigerator, book, clock, vase, scissors,
    teddy bear, hair drier, toothbrush
"""

NAMES: tuple[str, ...] = tuple(name.strip() for name in _TEXT.split(","))
"""In the order of their ids (cocodataset.org)."""

_UNUSED = frozenset((12, 26, 29, 30, 45, 66, 68, 69, 71, 83))
"""Ids of classes that COCO planned and never annotated."""

IDS: tuple[int, ...] = tuple(number for number in range(1, 91) if number not in _UNUSED)
"""The category id of each of :data:`NAMES`."""
