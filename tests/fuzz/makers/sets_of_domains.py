"""Small sets of sentences, translations, scenes, depth maps, sounds and captions from the committed examples."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

from tests.fuzz.case import ROOT

COUNT = 3

EXAMPLES = ROOT / "example"
POSES = EXAMPLES / "detection" / "digit_pose" / "data"
INSTANCES = EXAMPLES / "segmentation" / "digit_instances" / "data"
PLANES = EXAMPLES / "segmentation" / "planes_stereo" / "data" / "val"
PHOTOGRAPHS = EXAMPLES / "restoration" / "espcn_x2" / "data" / "val" / "HR"
WORDS = EXAMPLES / "speech" / "keypad_words" / "data"
PATCHES = EXAMPLES / "classification" / "digit_clip" / "data"
SENTENCES = EXAMPLES / "nlp" / "bert_ner" / "data" / "val.conll"
PROMPTS = EXAMPLES / "nlp" / "tiny_marian" / "data" / "val.tsv"


def _first_scenes(source: Path, data: Path) -> list[Path]:
    """Write the first scenes of a set in COCO's format, with their JSON."""
    content = json.loads((source / "val.json").read_bytes())
    kept = content["images"][:COUNT]
    ids = {image["id"] for image in kept}
    content["images"] = kept
    content["annotations"] = [one for one in content["annotations"] if one["image_id"] in ids]
    (data / "val").mkdir()
    for image in kept:
        shutil.copyfile(source / image["file_name"], data / image["file_name"])
    (data / "val.json").write_text(json.dumps(content))
    return [data / "val.json"]


def key_points(data: Path) -> list[Path]:
    """Write scenes with key points in COCO's format."""
    return _first_scenes(POSES, data)


def instances(data: Path) -> list[Path]:
    """Write scenes with a mask for each object in COCO's format."""
    return _first_scenes(INSTANCES, data)


def disparity(data: Path) -> list[Path]:
    """Write pairs of images with a disparity in PNGs of 16 bits each, in KITTI's layout."""
    names = [one.name for one in sorted((PLANES / "image_2").iterdir())[:COUNT]]
    for below in ("image_2", "image_3", "disp_occ_0"):
        (data / below).mkdir()
        for name in names:
            shutil.copyfile(PLANES / below / name, data / below / name)
    return [data / "disp_occ_0" / name for name in names]


def arrays_of_disparity(data: Path) -> list[Path]:
    """Write the same, with ``.npy`` files."""
    import numpy as np
    from PIL import Image

    files = []
    for file in disparity(data):
        with Image.open(file) as image:
            np.save(file.with_suffix(".npy"), np.array(image).astype(np.float32) / 256)
        file.unlink()
        files.append(file.with_suffix(".npy"))
    return files


def restored(data: Path) -> list[Path]:
    """Write originals, of which the task makes the small ones; they are their own annotations."""
    (data / "HR").mkdir()
    files = []
    for file in sorted(PHOTOGRAPHS.iterdir())[:2]:
        shutil.copyfile(file, data / "HR" / file.name)
        files.append(data / "HR" / file.name)
    return files


def spoken_words(data: Path) -> list[Path]:
    """Write recordings in the layout of Speech Commands; the list of the test, and the recordings, are annotations."""
    rows, files = [], []
    for word in ("seven", "star", "two"):
        (data / word).mkdir()
        for file in sorted((WORDS / word).iterdir())[:2]:
            shutil.copyfile(file, data / word / file.name)
            files.append(data / word / file.name)
            rows.append(f"{word}/{file.name}\n")
    (data / "testing_list.txt").write_text("".join(rows))
    return [data / "testing_list.txt", *files]


def sounds_of_classes(data: Path) -> list[Path]:
    """Write the same as a folder per class."""
    listed, *files = spoken_words(data)
    listed.unlink()
    return files


def captions(data: Path) -> list[Path]:
    """Write images with captions."""
    rows = (PATCHES / "captions.txt").read_text().splitlines()[:COUNT]
    (data / "images").mkdir()
    for row in rows:
        name = row.partition("\t")[0]
        shutil.copyfile(PATCHES / name, data / name)
    (data / "captions.txt").write_text("".join(f"{row}\n" for row in rows))
    return [data / "captions.txt"]


def tags(data: Path) -> list[Path]:
    """Write sentences with a tag for each word."""
    text = SENTENCES.read_text(encoding="utf-8")
    (data / "val.conll").write_text("\n\n".join(text.split("\n\n")[: 2 * COUNT]) + "\n", encoding="utf-8")
    return [data / "val.conll"]


def translations(data: Path) -> list[Path]:
    """Write sources and translations as a table."""
    rows = PROMPTS.read_text(encoding="utf-8").splitlines()[: COUNT + 1]
    (data / "val.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return [data / "val.tsv"]


# ------------------------------------------------------------------------------------------------------- whole attacks


def odd_array(file: Path, rng: random.Random) -> str:
    """Write an ``.npy`` file with another header or content."""
    import numpy as np

    values = np.load(file)
    size = rng.choice((10**15, 2**63, -1, 10**40, 1 << 17))
    heads = {
        "many rows": f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({size}, 1), }}",
        "no shape": "{'descr': '<f4', 'fortran_order': False}",
        "a pickle": "{'descr': '|O', 'fortran_order': False, 'shape': (2, 2), }",
        "fields": "{'descr': [('a', '<f4'), ('b', '<i2')], 'fortran_order': False, 'shape': (2, 2), }",
        "an open bracket": "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), " + "(" * rng.choice((1, 300)),
        "no dict": "__import__('os').getcwd()",
        "another type": "{'descr': '<U9', 'fortran_order': False, 'shape': (2, 2), }",
        "odd keys": "{1: 2, 'descr': '<f4', b'x': 3}",
    }
    how = rng.choice(
        (*heads, "3 axes", "complex", "bool", "int64", "NaN", "infinite", "negative", "empty", "other size")
    )
    if how in heads:
        head = heads[how].encode().ljust(117) + b"\n"
        version = rng.choice((1, 1, 2, 3, 9))
        length = len(head).to_bytes(2 if version == 1 else 4, "little")
        file.write_bytes(b"\x93NUMPY" + bytes([version, 0]) + length + head + b"\0" * 16)
        return f"{how}, version {version}"
    changed = {
        "3 axes": values[None], "complex": values * 1j, "bool": values > 1, "int64": values.astype(np.int64) << 40,
        "NaN": values * np.float32("nan"), "infinite": values + np.float32("inf"), "negative": -values,
        "empty": values[:0], "other size": values[::2, 1:],
    }  # fmt: skip
    np.save(file, changed[how])
    return how


def odd_map(file: Path, rng: random.Random) -> str:
    """Write a PNG of another kind or size."""
    import numpy as np
    from PIL import Image

    how = rng.choice(("grey", "RGB", "palette", "1 x 1", "large", "zeros", "JPEG", "turned"))
    with Image.open(file) as image:
        values = np.array(image)
    small = (values // 256).astype(np.uint8)
    made = {
        "grey": lambda: Image.fromarray(small),
        "RGB": lambda: Image.fromarray(small).convert("RGB"),
        "palette": lambda: Image.fromarray(small).convert("P"),
        "1 x 1": lambda: Image.fromarray(values[:1, :1]),
        "large": lambda: Image.fromarray(np.zeros((3000, 3000), np.uint16)),
        "zeros": lambda: Image.fromarray(values * 0),
        "JPEG": lambda: Image.fromarray(small),
        "turned": lambda: Image.fromarray(np.ascontiguousarray(values.T)),
    }[how]()
    made.save(file, "JPEG" if how == "JPEG" else "PNG")
    return how
