"""Earlier path of :mod:`torch_sdaa.reports.summaries`, imported by scripts."""

from torch_sdaa.reports.summaries import DeviceTimes, device_times, memory_counts, time_summary

__all__ = ["DeviceTimes", "device_times", "memory_counts", "time_summary"]
