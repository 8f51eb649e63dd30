"""The path that :mod:`torch_sdaa.reports.summaries` had before: scripts import it."""

from torch_sdaa.reports.summaries import DeviceTimes, device_times, memory_counts, time_summary

__all__ = ["DeviceTimes", "device_times", "memory_counts", "time_summary"]
