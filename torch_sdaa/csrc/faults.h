// What goes wrong on order, and what else must be looked at around a launch: forked processes, strict mode.
#pragma once
#include "common.h"

namespace sdaa {

inline std::atomic<bool> touched{false};   // whether this process has taken device memory
inline std::atomic<bool> forked{false};    // whether it is a child of one that had: its device is its parent's
inline std::atomic<bool> strict{false};    // whether to refuse what such cards cannot do
inline std::atomic<bool> watchful{false};  // whether any of all this is the case: the one flag that every launch reads

inline std::array<std::atomic<bool>, kMaxDevices> no_memory{};    // the device finds no memory in this step
inline std::array<std::atomic<bool>, kMaxDevices> nan_results{};  // the device's float results are NaN in this step

struct Lost {
  std::string why;          // empty: the device is healthy
  int64_t patience_us = 0;  // what the host waits, in simulated time, until it gives the device up
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

// A child of a process that has used the device: any use of it is refused, and its log is left alone (another thread of the
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
