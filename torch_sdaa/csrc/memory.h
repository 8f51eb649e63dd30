// Device memory: the bytes are on the host, the accounting is the device's. Pinned host memory.
#pragma once
#include "common.h"
#include "faults.h"

namespace sdaa {

constexpr int64_t kGrain = 512;         // bytes to which a block is rounded up
constexpr int64_t kSegment = 2 << 20;   // unit in which memory is reserved on the device

struct Book {
  std::atomic<int64_t> allowed{INT64_MAX};  // of the limit, set by set_per_process_memory_fraction
  std::atomic<int64_t> live{0}, live_peak{0};
  std::atomic<int64_t> now{0}, peak{0}, blocks{0}, frees{0}, total{0}, freed{0}, denied{0}, reserved{0}, reserved_peak{0};
  std::atomic<bool> used{false};  // since the process started
};
inline std::array<Book, kMaxDevices> books;
inline std::atomic<int64_t> limit_bytes{15296LL << 20};

inline int64_t rounded(int64_t bytes, int64_t grain = kGrain) { return (bytes + grain - 1) / grain * grain; }

inline void raise_to(std::atomic<int64_t>& value, int64_t least) {
  int64_t seen = value;
  while (least > seen && !value.compare_exchange_weak(seen, least)) {}
}

// Readable bytes: MiB without a fraction if possible, else with one digit; below a MiB, KiB.
inline std::string shown_bytes(int64_t bytes) {
  const bool small = bytes < kMiB && bytes > -kMiB;
  const double unit = small ? 1024 : kMiB, value = double(bytes) / unit;
  char text[64];
  snprintf(text, sizeof text, value == std::floor(value) ? "%.0f %s" : "%.1f %s", value, small && bytes ? "KiB" : "MiB");
  return text;
}

inline void reserve(DeviceIndex device, int64_t bytes) {
  check_process();
  auto& book = books[device];
  const bool ordered = no_memory[device].load(std::memory_order_relaxed);
  const int64_t now = book.now.fetch_add(bytes) + bytes;
  const int64_t allowed = std::min(limit_bytes.load(), book.allowed.load());
  if (now > allowed || ordered) {
    book.now -= bytes;
    book.denied++;
    TORCH_CHECK_WITH(OutOfMemoryError, false, "SDAA out of memory. Tried to allocate ", shown_bytes(bytes), " on sdaa:",
                     int(device), ", which has ", shown_bytes(limit_bytes),
                     allowed < limit_bytes ? "; set_per_process_memory_fraction leaves this process " + shown_bytes(allowed) : "",
                     ", of which ", shown_bytes(std::max<int64_t>(allowed - now + bytes, 0)), " are free (simulated). ",
                     ordered ? "This is an injected fault (TECO_SIM_FAULTS)"
                             : "Use a smaller batch, or free unused tensors");
  }
  touched = true;
  book.used = true;
  book.blocks++;
  raise_to(book.live_peak, ++book.live);
  book.total += bytes;
  raise_to(book.peak, now);
  raise_to(book.reserved, rounded(now, kSegment));
  raise_to(book.reserved_peak, book.reserved);
}

// Reports to torch.profiler (profile_memory=True) what was allocated, or freed (then the bytes are negative).
inline void report_memory(void* data, int64_t bytes, DeviceIndex device) {
  if (c10::memoryProfilingEnabled())
    c10::reportMemoryUsageToProfiler(data, bytes, size_t(books[device].now), size_t(books[device].reserved), Device(kSdaa, device));
}

// The owner of a storage's bytes: our own memory, or that of a host kernel's result.
struct Block {
  void* own;
  int64_t bytes;
  DeviceIndex device;
  c10::DataPtr inner;
};

inline void free_block(void* context) {
  auto* block = static_cast<Block*>(context);
  auto& book = books[block->device];
  book.now -= block->bytes;
  book.freed += block->bytes;
  book.frees++;
  book.live--;
  report_memory(block->own ? block->own : block->inner.get(), -block->bytes, block->device);
  if (block->own) c10::free_cpu(block->own);
  delete block;
}

struct Allocator final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t bytes) override {
    const auto device = seen(current);
    if (!bytes) return {nullptr, nullptr, &free_block, Device(kSdaa, device)};
    const int64_t whole = rounded(int64_t(bytes));
    reserve(device, whole);
    void* data = c10::alloc_cpu(bytes);
    report_memory(data, whole, device);
    return {data, new Block{data, whole, device, {}}, &free_block, Device(kSdaa, device)};
  }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {
    for (int i = 0; i < n_devices; i++) books[i].reserved = rounded(books[i].now, kSegment);
  }
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(DeviceIndex device) override {
    const auto& book = books[seen(device)];
    c10::CachingDeviceAllocator::DeviceStats stats;
    auto& bytes = stats.allocated_bytes[0];
    bytes.current = book.now;
    bytes.peak = book.peak;
    bytes.allocated = book.total;
    bytes.freed = book.freed;
    stats.active_bytes[0] = bytes;
    auto& blocks = stats.allocation[0];
    blocks.current = book.live;
    blocks.peak = book.live_peak;
    blocks.allocated = book.blocks;
    blocks.freed = book.frees;
    stats.active[0] = blocks;
    stats.reserved_bytes[0].current = book.reserved;
    stats.reserved_bytes[0].peak = book.reserved_peak;
    stats.num_ooms = book.denied;
    return stats;
  }
  void resetAccumulatedStats(DeviceIndex device) override {
    auto& book = books[seen(device)];
    book.total = book.freed = book.blocks = book.frees = book.denied = 0;
  }
  void resetPeakStats(DeviceIndex device) override {
    auto& book = books[seen(device)];
    book.peak = book.now.load();
    book.live_peak = book.live.load();
    book.reserved_peak = book.reserved.load();
  }
  std::pair<size_t, size_t> getMemoryInfo(DeviceIndex device) override {
    return {size_t(limit_bytes - books[seen(device)].now), size_t(limit_bytes.load())};
  }
};
inline Allocator& allocator() {
  static Allocator one;
  return one;
}

// Converts the new storage of a host kernel's result to one of the device, in place.
inline void adopt(StorageImpl* storage, DeviceIndex device) {
  if (storage->device_type() == kSdaa) return;
  const int64_t whole = rounded(int64_t(storage->nbytes()));
  reserve(device, whole);
  void* data = storage->mutable_data();
  auto* block = new Block{nullptr, whole, device, {}};
  block->inner = storage->set_data_ptr(c10::DataPtr(data, block, &free_block, Device(kSdaa, device)));
  storage->set_allocator(&allocator());
  report_memory(data, whole, device);
}

// ------------------------------------------------------------------------------------------------ pinned host memory

inline std::mutex pinned_lock;
inline std::map<uintptr_t, size_t> pinned;

inline void unpin(void* data) {
  if (!data) return;
  {
    std::lock_guard<std::mutex> hold(pinned_lock);
    pinned.erase(uintptr_t(data));
  }
  c10::free_cpu(data);
}

inline bool is_pinned(const void* data) {
  std::lock_guard<std::mutex> hold(pinned_lock);
  auto after = pinned.upper_bound(uintptr_t(data));
  if (after == pinned.begin()) return false;
  --after;
  return uintptr_t(data) < after->first + after->second;
}

struct PinnedAllocator final : at::HostAllocator {
  c10::DataPtr allocate(size_t bytes) override {
    void* data = bytes ? c10::alloc_cpu(bytes) : nullptr;
    if (data) {
      std::lock_guard<std::mutex> hold(pinned_lock);
      pinned[uintptr_t(data)] = bytes;
    }
    return {data, data, &unpin, Device(at::kCPU)};
  }
  at::DeleterFnPtr raw_deleter() const override { return &unpin; }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }
  bool record_event(void*, void*, c10::Stream) override { return true; }
  void empty_cache() override {}
  at::HostStats get_stats() override { return {}; }
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override {}
};
inline PinnedAllocator& pinned_allocator() {
  static PinnedAllocator one;
  return one;
}

inline void bind_memory(py::module& m) {
  m.def("memory_allocated", [](int64_t i) { return books[seen(i)].now.load(); });
  m.def("max_memory_allocated", [](int64_t i) { return books[seen(i)].peak.load(); });
  m.def("memory_reserved", [](int64_t i) { return books[seen(i)].reserved.load(); });
  m.def("max_memory_reserved", [](int64_t i) { return books[seen(i)].reserved_peak.load(); });
  m.def("memory_counts", [](int64_t i) {
    auto& book = books[seen(i)];
    return std::map<std::string, int64_t>{{"allocations", book.blocks}, {"frees", book.frees}, {"allocated_bytes", book.total},
                                          {"freed_bytes", book.freed}, {"ooms", book.denied}};
  });
  m.def("reset_peak", [](int64_t i) { allocator().resetPeakStats(seen(i)); });
  m.def("reset_accumulated", [](int64_t i) { allocator().resetAccumulatedStats(seen(i)); });
  m.def("set_allowed", [](int64_t i, int64_t bytes) { books[seen(i)].allowed = bytes; });
  m.def("allowed", [](int64_t i) { return std::min(limit_bytes.load(), books[seen(i)].allowed.load()); });
  m.def("empty_cache", [] { allocator().emptyCache({}); });
  m.def("set_memory_limit", [](int64_t bytes) { limit_bytes = bytes; });
  m.def("memory_limit", [] { return limit_bytes.load(); });
  m.def("touched", [] { return touched.load(); });
  m.def("in_bad_fork", [] { return forked.load(); });
  m.def("check_process", &check_process);
}

}  // namespace sdaa
