// Random numbers: a device's generator draws the same numbers as the CPU's from the same state, without changing the CPU's.
#pragma once
#include "common.h"

namespace sdaa {

struct Generator : c10::GeneratorImpl {
  at::Generator host;
  std::atomic<bool> follows{false};  // of a default generator: seeded together with the CPU's, and not used yet
  explicit Generator(DeviceIndex device, uint64_t seed = c10::default_rng_seed_val)
      : GeneratorImpl(Device(kSdaa, device), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
        host(at::detail::createCPUGenerator(seed)) {}
  void set_current_seed(uint64_t seed) override {
    follows = false;
    host.set_current_seed(seed);
  }
  void set_offset(uint64_t offset) override { host.set_offset(offset); }
  uint64_t get_offset() const override { return host.get_offset(); }
  uint64_t current_seed() const override { return host.current_seed(); }
  uint64_t seed() override {
    follows = false;
    return host.seed();
  }
  void set_state(const c10::TensorImpl& state) override {
    follows = false;
    host.unsafeGetGeneratorImpl()->set_state(state);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    begin();
    return host.unsafeGetGeneratorImpl()->get_state();
  }
  // A script that creates weights and data on the CPU, and then trains on a device, so draws for the training the numbers that
  // it would draw on the CPU alone, and the CPU's generator is not changed.
  void begin() const {
    auto& pending = const_cast<std::atomic<bool>&>(follows);
    if (!pending.load(std::memory_order_relaxed) || !pending.exchange(false)) return;
    const auto& cpus = at::detail::getDefaultCPUGenerator();
    if (cpus == host) return;
    auto* from = at::check_generator<at::CPUGeneratorImpl>(cpus);
    std::scoped_lock lock(from->mutex_);
    auto* to = at::check_generator<at::CPUGeneratorImpl>(host);
    to->set_engine(from->engine());
    to->set_next_float_normal_sample(from->next_float_normal_sample());
    to->set_next_double_normal_sample(from->next_double_normal_sample());
  }
  Generator* clone_impl() const override {
    begin();
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

// From here on the devices draw from the CPU's default generator, in one sequence with the CPU.
inline void share_generator() {
  for (int i = 0; i < kMaxDevices; i++)
    static_cast<Generator*>(default_generator(DeviceIndex(i)).unsafeGetGeneratorImpl())->host =
        at::detail::getDefaultCPUGenerator();
}

// After all default generators were seeded with the CPU's.
inline void follow_the_cpu() {
  for (int i = 0; i < n_devices; i++)
    static_cast<Generator*>(default_generator(DeviceIndex(i)).unsafeGetGeneratorImpl())->follows = true;
}

inline at::Generator& host_generator(const at::Generator& generator) {
  auto* made = static_cast<Generator*>(generator.unsafeGetGeneratorImpl());
  made->begin();
  return made->host;
}

// During its lifetime, the CPU's default generator continues the device's sequence. For kernels without a generator
// argument. Such kernels run one at a time; numbers that another thread draws on the CPU meanwhile are from this sequence too.
struct Lent {
  explicit Lent(DeviceIndex device) : device(device) {
    if ((nested = lent_here == device || host_generator(default_generator(device)) == at::detail::getDefaultCPUGenerator()))
      return;
    hold = std::unique_lock(lock, std::try_to_lock);
    if (!hold && PyGILState_Check()) {  // its owner may need the interpreter
      py::gil_scoped_release release;
      hold.lock();
    } else if (!hold) {
      hold.lock();
    }
    before = std::exchange(lent_here, int(device));
    swap();
  }
  ~Lent() {
    if (nested) return;
    swap();
    lent_here = before;
  }
  Lent(const Lent&) = delete;

 private:
  void swap() {
    auto* mine = at::check_generator<at::CPUGeneratorImpl>(host_generator(default_generator(device)));
    auto* cpus = at::check_generator<at::CPUGeneratorImpl>(at::detail::getDefaultCPUGenerator());
    std::scoped_lock both(mine->mutex_, cpus->mutex_);
    const auto engine = mine->engine();
    const auto one = mine->next_float_normal_sample();
    const auto two = mine->next_double_normal_sample();
    mine->set_engine(cpus->engine());
    mine->set_next_float_normal_sample(cpus->next_float_normal_sample());
    mine->set_next_double_normal_sample(cpus->next_double_normal_sample());
    cpus->set_engine(engine);
    cpus->set_next_float_normal_sample(one);
    cpus->set_next_double_normal_sample(two);
  }
  static inline std::recursive_mutex lock;
  static inline thread_local int lent_here = -1;
  const DeviceIndex device;
  bool nested = false;
  int before = -1;
  std::unique_lock<std::recursive_mutex> hold;
};

inline void bind_generator(py::module& m) {
  m.def("follow_the_cpu", &follow_the_cpu);
  m.def("share_generator", &share_generator);
  m.def("default_generator", [](int64_t i) {
    return py::reinterpret_steal<py::object>(THPGenerator_initDefaultGenerator(default_generator(seen(i))));
  });
}

}  // namespace sdaa
