// The state in which host kernels run: the thread count and the flush mode of the thread that owns the device.
#pragma once
#include "common.h"
#include "memory.h"
#include <thread>

namespace sdaa {

// Host kernels split their sums by the calling thread's number of threads. An autograd worker has its own: the number that was
// last passed to set_num_threads by any thread (DataLoader's pinning thread passes 1). So every thread but the owner (which
// imported the module) computes with the owner's number, and with its flush-denormal bits.
inline std::atomic<pthread_t> owner{};
inline std::atomic<int> owner_threads{0};
inline std::atomic<unsigned> owner_flush{0};

#ifdef __SSE2__
inline unsigned flush_bits() { return _mm_getcsr() & 0x8040u; }
inline void set_flush_bits(unsigned bits) { _mm_setcsr((_mm_getcsr() & ~0x8040u) | bits); }
#else
inline unsigned flush_bits() { return 0; }
inline void set_flush_bits(unsigned) {}
#endif

// Before a host kernel runs. In a forked child a kernel with threads would wait without end for those of its parent.
inline void take_owners_state() {
  check_process();
  const int threads = at::get_num_threads();
  if (pthread_equal(pthread_self(), owner)) {
    owner_threads = threads;
    owner_flush = flush_bits();
    return;
  }
  if (const int wanted = owner_threads; threads != wanted) at::set_num_threads(wanted);
  if (const unsigned wanted = owner_flush; flush_bits() != wanted) set_flush_bits(wanted);
}

inline void after_fork() {
  owner = pthread_self();
  note_fork();
}

inline void claim_owner() {
  owner = pthread_self();
  owner_threads = at::get_num_threads();
  owner_flush = flush_bits();
  pthread_atfork(nullptr, nullptr, &after_fork);
}

// At exit: an autograd worker that is still dropping Python references of the last backward needs the interpreter lock; once
// Python has begun to finalise, acquiring it ends the thread by pthread_exit, through a noexcept destructor: std::terminate. A
// worker takes its next task only after it has dropped the last one, so one backward without Python on each device is a barrier.
// In its own thread, whose nodes are numbered from 0: a worker takes the highest number first, so this comes after
// anything that a failed backward has left in its queue. A lost device takes no task. All devices that have or had
// memory are included: a worker that has just received its first task has left no trace yet.
inline void drain() {
  if (forked || !touched) return;
  std::thread([] {
    for (int i = 0; i < n_devices; i++)
      if (books[i].used) try {
          auto x = at::ones({}, at::TensorOptions(Device(kSdaa, DeviceIndex(i)))).requires_grad_(true);
          (x * x).backward();
        } catch (const c10::Error& error) {
          TORCH_WARN_ONCE("sdaa:", i, " did not end its backward at exit: ", error.what_without_backtrace());
        }
  }).join();
}

inline void keep_freed_memory() {
#ifdef __GLIBC__  // returning freed activations to the system costs a page fault per 4 KiB in every step
  if (!getenv("MALLOC_TRIM_THRESHOLD_")) {
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
  }
#endif
}

inline void bind_threads(py::module& m) { m.def("drain", &drain, py::call_guard<py::gil_scoped_release>()); }

}  // namespace sdaa
