// Injected faults, and other checks around a launch: forked processes, strict mode.
#pragma once
#include "common.h"

namespace sdaa {

inline std::atomic<bool> touched{false};   // whether this process has allocated device memory
inline std::atomic<bool> forked{false};    // whether it is a child of a process that had: its device belongs to the parent
inline std::atomic<bool> strict{false};    // whether to refuse what such cards do not support
inline std::atomic<bool> watchful{false};  // whether any of these is active: the one flag that every launch reads

inline std::array<std::atomic<bool>, kMaxDevices> no_memory{};    // allocations on the device fail in this step
inline std::array<std::atomic<bool>, kMaxDevices> nan_results{};  // the device's float results are NaN in this step

struct Lost {
  std::string why;          // empty: the device is healthy
  int64_t patience_us = 0;  // simulated time that the host waits before it reports the device as lost
};
inline std::mutex lost_lock;
inline std::array<Lost, kMaxDevices> lost;

inline void check_process() {
  TORCH_CHECK(!forked, "Cannot use the SDAA device in a forked process: the parent has used it. Use the start method "
              "'spawn' (DataLoader: multiprocessing_context='spawn'), or keep the worker on the CPU and move batches to "
              "the device in the parent");
}

inline void look_again() {
  bool any = forked || strict;
  for (int i = 0; i < kMaxDevices; i++) any = any || no_memory[i] || nan_results[i] || !lost[i].why.empty();
  watchful = any;
}

// A child of a process that has used the device: any use of it is an error, and its log is not touched (another thread of
// parent may have held a lock).
inline void note_fork() {
  forked = forked || touched;
  if (forked) watchful = true;
}

inline void bind_faults(py::module& m) {
  m.def("set_fault", [](int64_t device, const std::string& kind, bool on) {
    (kind == "oom" ? no_memory : nan_results)[seen(device)] = on;
    std::lock_guard<std::mutex> hold(lost_lock);
    look_again();
  });
  m.def("lose", [](int64_t device, std::string why, double patience_seconds) {
    std::lock_guard<std::mutex> hold(lost_lock);
    lost[seen(device)] = {std::move(why), int64_t(patience_seconds * 1e6)};
    look_again();
  });
  m.def("set_strict", [](bool on) {
    std::lock_guard<std::mutex> hold(lost_lock);
    strict = on;
    look_again();
  });
  m.def("is_strict", [] { return strict.load(); });
}

}  // namespace sdaa
