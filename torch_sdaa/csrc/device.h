// The device for c10: guard, streams, events, hooks.
#pragma once
#include "common.h"
#include "generator.h"
#include "log.h"
#include "memory.h"

namespace sdaa {

inline thread_local std::array<c10::StreamId, kMaxDevices> streams{};  // the thread's current stream on each device
inline std::array<std::atomic<uint32_t>, kMaxDevices> next_stream{};
inline std::atomic<uint32_t> next_event{1};

struct Event {
  uint32_t id;
  DeviceIndex device;
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
  c10::Stream getNewStream(Device d, int) const override {  // from a pool used in rotation, as on CUDA
    const auto i = seen(d.index());
    return c10::Stream(c10::Stream::UNSAFE, Device(kSdaa, i), 1 + next_stream[i]++ % kPool);
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
    check_device(s.device_index());
    if (!*event) *event = new Event{next_event++, s.device_index()};
    static_cast<Event*>(*event)->device = s.device_index();
    note(What::record, s.device_index(), s.id(), static_cast<Event*>(*event)->id);
  }
  void block(void* event, const c10::Stream& s) const override {
    if (event) note(What::wait, s.device_index(), s.id(), static_cast<Event*>(event)->id);
  }
  // Values are available immediately, so the answer is always yes: a script that polls must not poll without end. On the
  // clock the host then has waited, as it would have by polling. A profile distinguishes the two: polling does not wait.
  bool queryEvent(void* event) const override {
    waitEvent(event, "query");
    return true;
  }
  bool queryStream(const c10::Stream& s) const override {
    waitStream(s, "query");
    return true;
  }
  void synchronizeStream(const c10::Stream& s) const override { waitStream(s, "synchronize"); }
  void synchronizeEvent(void* event) const override { waitEvent(event, "synchronize"); }
  void waitStream(const c10::Stream& s, const char* name) const {
    Within span(Doing::runtime, name);
    check_device(s.device_index());
    note(What::sync_stream, s.device_index(), s.id());
  }
  void waitEvent(void* event, const char* name) const {
    if (!event) return;
    Within span(Doing::runtime, name);
    auto* mine = static_cast<Event*>(event);
    check_device(mine->device);
    note(What::sync_event, mine->device, 0, mine->id);
  }
  void synchronizeDevice(const DeviceIndex d) const override {
    Within span(Doing::runtime, "synchronize");
    check_device(seen(d));
    note(What::sync_device, resolved(d), 0);
  }
  void destroyEvent(void* event, const DeviceIndex d) const noexcept override {
    if (!event) return;
    note(What::forget, resolved(d), 0, static_cast<Event*>(event)->id);
    delete static_cast<Event*>(event);
  }
  void recordDataPtrOnStream(const c10::DataPtr&, const c10::Stream&) const override {}
  double elapsedTime(void* from, void* to, const DeviceIndex) const override {  // milliseconds, simulated
    const auto *first = static_cast<Event*>(from), *second = static_cast<Event*>(to);
    TORCH_CHECK_VALUE(first->device == second->device, "Event.elapsed_time: the events were recorded on sdaa:",
                      int(first->device), " and sdaa:", int(second->device), "; record both on one device");
    return 1e3 * (event_time(second->id).seconds - event_time(first->id).seconds);
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

// Logs a copy that was made. The host continues immediately only if it would on hardware: between devices, and with
// non_blocking from or to pinned memory.
inline void copied(const Tensor& from, const Tensor& to, bool non_blocking) {
  const bool comes = on_card(to), goes = on_card(from);
  const auto device = (comes ? to : from).device().index();
  const bool between = comes && goes && from.device().index() != device;
  const auto what = !comes ? What::copy_out : !goes ? What::copy_in : between ? What::copy_between : What::kernel;
  static constexpr std::array names = {"aten::copy_", "copy_in", "copy_out", "copy_between"};
  const auto stream = int32_t(streams[device]);
  std::optional<Peer> peer;
  if (between) {
    const auto source = from.device().index();
    check_device(source);
    peer = Peer{source, int32_t(streams[source])};
  }
  launched(
      what, mixed(mixed(mixed(uint64_t(what), 1), from), to), device, stream,
      [&] {
        Signature made{names[size_t(what)]};
        add_meta(made.inputs, from);
        add_meta(made.outputs, to);
        return made;
      },
      peer ? &*peer : nullptr);
  const bool crosses = what == What::copy_in || what == What::copy_out;
  if (crosses && !(non_blocking && is_pinned((comes ? from : to).data_ptr()))) note(What::sync_stream, device, stream);
}

inline void bind_device(py::module& m) {
  m.def("device_count", [] { return n_devices; });
  m.def("set_device_count", [](int n) {
    TORCH_CHECK(n >= 0 && n <= kMaxDevices, "a process sees at most ", kMaxDevices, " SDAA devices, not ", n,
                "; select some with SDAA_VISIBLE_DEVICES");
    n_devices = n;
  });
  m.def("current_device", [] { return int(current); });
  m.def("set_device", [](int64_t i) { Guard().setDevice({kSdaa, seen(i)}); });
  m.def("exchange_device", [](int64_t i) { return int(hooks().exchangeDevice(i < 0 ? DeviceIndex(-1) : seen(i))); });
  m.def("synchronize", [](int64_t i) { Guard().synchronizeDevice(seen(i)); }, py::call_guard<py::gil_scoped_release>());
}

}  // namespace sdaa
