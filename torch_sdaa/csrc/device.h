// The device as c10 sees it: guard, streams, events, hooks.
#pragma once
#include "common.h"
#include "generator.h"
#include "log.h"
#include "memory.h"

namespace sdaa {

inline thread_local std::array<c10::StreamId, kMaxDevices> streams{};  // the thread's current stream on each device
inline std::atomic<c10::StreamId> next_stream{1};

inline void note(What what, DeviceIndex device, c10::StreamId stream, uint32_t id = 0) {
  append(the_log(), {id, what, int8_t(device), thread_number(), int32_t(stream)});
}

struct Event {
  uint32_t id;
};

struct Guard final : c10::impl::DeviceGuardImplInterface {
  static constexpr auto static_type = kSdaa;
  Guard() = default;
  explicit Guard(c10::DeviceType) {}
  c10::DeviceType type() const override { return kSdaa; }
  Device exchangeDevice(Device d) const override {
    const auto before = current;
    setDevice(d);
    return {kSdaa, before};
  }
  Device getDevice() const override { return {kSdaa, current}; }
  void setDevice(Device d) const override {
    current = seen(d.index());
  }
  void uncheckedSetDevice(Device d) const noexcept override {
    if (d.index() >= 0) current = d.index();
  }
  c10::Stream getStream(Device d) const override {
    const auto i = seen(d.index());
    return c10::Stream(c10::Stream::UNSAFE, Device(kSdaa, i), streams[i]);
  }
  c10::Stream getDefaultStream(Device d) const override {
    return c10::Stream(c10::Stream::DEFAULT, Device(kSdaa, seen(d.index())));
  }
  c10::Stream getNewStream(Device d, int) const override {
    return c10::Stream(c10::Stream::UNSAFE, Device(kSdaa, seen(d.index())), next_stream++);
  }
  c10::Stream getStreamFromGlobalPool(Device d, bool) const override { return getNewStream(d, 0); }
  c10::Stream exchangeStream(c10::Stream s) const override {
    const auto before = getStream(s.device());
    streams[s.device_index()] = s.id();
    return before;
  }
  DeviceIndex deviceCount() const noexcept override { return DeviceIndex(n_devices); }
  c10::DeviceCapability getDeviceCapability(Device) const override { return {}; }  // every dtype
  void record(void** event, const c10::Stream& s, const DeviceIndex, const c10::EventFlag) const override {
    if (!*event) *event = new Event{the_log().next_event++};
    note(What::record, s.device_index(), s.id(), static_cast<Event*>(*event)->id);
  }
  void block(void* event, const c10::Stream& s) const override {
    if (event) note(What::wait, s.device_index(), s.id(), static_cast<Event*>(event)->id);
  }
  bool queryEvent(void*) const override { return true; }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream& s) const override { note(What::sync_stream, s.device_index(), s.id()); }
  void synchronizeEvent(void* event) const override {
    if (event) note(What::sync_event, current, 0, static_cast<Event*>(event)->id);
  }
  void synchronizeDevice(const DeviceIndex d) const override { note(What::sync_device, seen(d), 0); }
  void destroyEvent(void* event, const DeviceIndex d) const noexcept override {
    if (!event) return;
    note(What::forget, resolved(d), 0, static_cast<Event*>(event)->id);
    delete static_cast<Event*>(event);
  }
  void recordDataPtrOnStream(const c10::DataPtr&, const c10::Stream&) const override {}
  double elapsedTime(void* from, void* to, const DeviceIndex) const override {  // milliseconds, simulated
    return 1e3 * (event_time(static_cast<Event*>(to)->id) - event_time(static_cast<Event*>(from)->id));
  }
};

struct Hooks final : at::PrivateUse1HooksInterface {
  void init() const override {}
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return n_devices > 0; }
  DeviceIndex deviceCount() const override { return DeviceIndex(n_devices); }
  void setCurrentDevice(DeviceIndex i) const override { Guard().setDevice({kSdaa, i}); }
  DeviceIndex getCurrentDevice() const override { return current; }
  DeviceIndex exchangeDevice(DeviceIndex i) const override {
    const auto before = current;
    if (i >= 0) Guard().setDevice({kSdaa, i});
    return before;
  }
  DeviceIndex maybeExchangeDevice(DeviceIndex i) const override { return exchangeDevice(i); }
  at::Allocator* getPinnedMemoryAllocator() const override { return &pinned_allocator(); }
  bool isPinnedPtr(const void* data) const override { return is_pinned(data); }
  const at::Generator& getDefaultGenerator(DeviceIndex i) const override { return default_generator(i); }
  at::Generator getNewGenerator(DeviceIndex i) const override { return at::make_generator<Generator>(seen(i)); }
  void resizePrivateUse1Bytes(const Storage& storage, size_t bytes) const override {
    const auto before = current;
    current = storage.device().index();
    auto data = allocator().allocate(bytes);
    current = before;
    std::memcpy(data.get(), storage.data(), std::min(bytes, storage.nbytes()));
    storage.set_data_ptr_noswap(std::move(data));
    storage.unsafeGetStorageImpl()->set_nbytes(bytes);
  }
};
inline Hooks& hooks() {
  static Hooks one;
  return one;
}

inline void bind_device(py::module& m) {
  m.def("device_count", [] { return n_devices; });
  m.def("set_device_count", [](int n) {
    TORCH_CHECK(n >= 0 && n <= kMaxDevices, "a process sees 0 to ", kMaxDevices, " SDAA devices, not ", n);
    n_devices = n;
  });
  m.def("current_device", [] { return int(current); });
  m.def("set_device", [](int i) { Guard().setDevice({kSdaa, DeviceIndex(i)}); });
  m.def("exchange_device", [](int i) { return int(hooks().exchangeDevice(DeviceIndex(i))); });
  m.def("synchronize", [](int i) { note(What::sync_device, seen(DeviceIndex(i)), 0); });
}

}  // namespace sdaa
