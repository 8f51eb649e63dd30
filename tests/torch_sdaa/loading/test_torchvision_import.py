"""``import torchvision`` after ``import torch_sdaa``, also if its compiled operators are from another build."""

from __future__ import annotations

import pytest
from support import RunPython

pytest.importorskip("torch")
import torch_sdaa  # noqa: F401 -- here, before a test gets a cache folder of its own, where it would be compiled anew

pytestmark = pytest.mark.torch

SCRIPT = """
import sys
import torch, torch_sdaa
import torchvision
from torchvision import datasets, transforms
assert not [finder for finder in sys.meta_path if type(finder).__name__ == "_BeforeImport"]
model = torchvision.models.resnet18(num_classes=4).to("sdaa").eval()
print(model(torch.zeros(1, 3, 32, 32, device="sdaa")).shape[1])
boxes = torch.tensor([[0.0, 0.0, 2.0, 2.0], [0.0, 0.0, 2.0, 2.0]])
try:
    kept = torchvision.ops.nms(boxes, torch.tensor([1.0, 0.5]), 0.5)
except RuntimeError as error:
    print("custom C++ ops" in str(error))
else:
    print(len(kept) == 1)
"""


@pytest.mark.long
@pytest.mark.slow
def test_torchvision_can_be_imported(run_python: RunPython) -> None:
    pytest.importorskip("PIL")
    done = run_python("-W", "error::UserWarning", "-c", SCRIPT)
    assert (done.returncode, done.stdout.split()) == (0, ["4", "True"]), done.stderr
