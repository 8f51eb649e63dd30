// Random numbers: a device's generator draws what the CPU's draws from the same seed, and leaves the CPU's alone.
#pragma once
#include "common.h"

namespace sdaa {

struct Generator : c10::GeneratorImpl {
  at::Generator host;
  explicit Generator(DeviceIndex device, uint64_t seed = c10::default_rng_seed_val)
      : GeneratorImpl(Device(kSdaa, device), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
        host(at::detail::createCPUGenerator(seed)) {}
  void set_current_seed(uint64_t seed) override { host.set_current_seed(seed); }
  void set_offset(uint64_t offset) override { host.set_offset(offset); }
  uint64_t get_offset() const override { return host.get_offset(); }
  uint64_t current_seed() const override { return host.current_seed(); }
  uint64_t seed() override { return host.seed(); }
  void set_state(const c10::TensorImpl& state) override { host.unsafeGetGeneratorImpl()->set_state(state); }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override { return host.unsafeGetGeneratorImpl()->get_state(); }
  Generator* clone_impl() const override {
    auto* copy = new Generator(device_.index());
    copy->host = host.clone();
    return copy;
  }
  static c10::DeviceType device_type() { return kSdaa; }
};

inline const at::Generator& default_generator(DeviceIndex device) {
  static std::vector<at::Generator> all = [] {
    std::vector<at::Generator> made;
    for (int i = 0; i < kMaxDevices; i++) made.push_back(at::make_generator<Generator>(DeviceIndex(i)));
    return made;
  }();
  return all[resolved(device)];
}

inline at::Generator& host_generator(const at::Generator& generator) {
  return static_cast<Generator*>(generator.unsafeGetGeneratorImpl())->host;
}

inline void bind_generator(py::module& m) {
  m.def("default_generator", [](int64_t i) {
    return py::reinterpret_steal<py::object>(THPGenerator_initDefaultGenerator(default_generator(seen(i))));
  });
}

}  // namespace sdaa
