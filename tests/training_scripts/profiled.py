"""A training step under torch.profiler, with the memory figures that people print."""
import sys

import torch
import torch.nn as nn
from sklearn.datasets import load_digits
from torch.profiler import ProfilerActivity, profile, record_function, schedule

torch.manual_seed(77)
has_gpu = torch.cuda.is_available()
device = torch.device("cuda", 0) if has_gpu else torch.device("cpu")
activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if has_gpu else [])
sort_by = "cuda_time_total" if has_gpu else "cpu_time_total"

if has_gpu:
    props = torch.cuda.get_device_properties(device)
    print(f"{torch.cuda.get_device_name(0)} with {props.total_memory >> 20} MiB, "
          f"capability {torch.cuda.get_device_capability(0)}", file=sys.stderr)

digits = load_digits()
x = torch.tensor(digits.images, dtype=torch.float32, device=device).unsqueeze(1) / 16
y = torch.tensor(digits.target, device=device)
model = nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(144, 10)).to(device)
optimizer = torch.optim.Adadelta(model.parameters())


def trace_handler(p):
    print(p.key_averages().table(sort_by=sort_by, row_limit=3), file=sys.stderr)


with profile(activities=activities, schedule=schedule(wait=1, warmup=1, active=2, repeat=1),
             on_trace_ready=trace_handler, profile_memory=True, record_shapes=True) as prof:
    for step in range(6):
        part = slice(step * 100, step * 100 + 100)
        with record_function("forward"):
            loss = nn.functional.cross_entropy(model(x[part]), y[part])
        with record_function("backward"):
            optimizer.zero_grad()
            loss.backward()
        optimizer.step()
        prof.step()
        print(f"step {step} loss {loss.item()!r}")

if has_gpu:
    names = ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved")
    for name in names:
        assert getattr(torch.cuda, name)(device) > 0, name
    free, total = torch.cuda.mem_get_info()
    assert 0 < free < total
    print(torch.cuda.memory_summary(abbreviated=True), file=sys.stderr)
    assert torch.cuda.memory_stats()["allocated_bytes.all.peak"] == torch.cuda.max_memory_allocated()
    del x, y, model, optimizer, loss
    torch.cuda.empty_cache()
