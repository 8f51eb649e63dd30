// Checks around a kernel: strict mode, results that a fault makes NaN, and the time that the host computes.
#pragma once
#include <ATen/ops/isfinite.h>
#include "common.h"
#include "faults.h"
#include "log.h"

namespace sdaa {

inline py::object* judge = nullptr;  // set by Python: a launch's description -> why such cards do not support it, or ""

// Raises an error for a launch in strict mode; each distinct launch is checked once.
inline void strict_launch(Log& log, uint32_t id, DeviceIndex device) {
  static std::mutex lock;
  static std::map<std::pair<uint32_t, uint32_t>, std::string> judged;  // by epoch and number
  static thread_local int mine = -1;
  if (!judge || &log != &the_log()) return;
  if (mine < 0) mine = device;
  TORCH_CHECK(mine == device, "strict mode: this thread has used sdaa:", mine, " and now uses sdaa:", int(device),
              "; such cards allow one device per thread: call torch.sdaa.set_device first, and start one process per device");
  uint32_t epoch;
  Signature signature;
  {
    std::lock_guard<std::mutex> hold(log.lock);
    epoch = log.epoch;
    if (id >= log.signatures.size()) return;  // retired since
    signature = log.signatures[id];
  }
  std::string why;
  bool known;
  {
    std::lock_guard<std::mutex> hold(lock);
    const auto found = judged.find({epoch, id});
    if ((known = found != judged.end())) why = found->second;
  }
  if (!known) {
    {
      py::gil_scoped_acquire acquire;
      why = (*judge)(described(signature)).cast<std::string>();
    }
    std::lock_guard<std::mutex> hold(lock);
    judged[{epoch, id}] = why;
  }
  TORCH_CHECK(why.empty(), why);
}

inline void refuse_not_finite(const Tensor& host, const std::string& op, const char* where) {
  if (!host.defined() || host.scalar_type() != at::kHalf || host.layout() != c10::kStrided || !host.numel()) return;
  TORCH_CHECK(at::isfinite(host).all().item<bool>(), "strict mode: ", op, " has inf or NaN in a float16 ", where,
              "; such cards do not support them: scale the loss (torch.amp.GradScaler) or compute this in float32");
}

// Checks the inputs and outputs of a kernel, if a fault or strict mode requires it.
template <class Call>
void inspect(const Call& call, torch::jit::Stack& stack) {
  const auto& returns = call.op.schema().returns();
  const size_t base = stack.size() - returns.size();
  const bool spoil = call.device >= 0 && nan_results[call.device];
  const auto& name = call.op.operator_name().name;
  const bool look = strict && name != "aten::_amp_foreach_non_finite_check_and_unscale_";
  for (size_t k = 0; k < returns.size(); k++) {
    const auto* alias = returns[k].alias_info();
    if ((alias && !alias->isWrite()) || !stack[base + k].isTensor()) continue;  // a view of a tensor that was already checked
    const auto& t = stack[base + k].toTensor();
    if (!t.defined() || !on_card(t) || t.is_sparse()) continue;
    if (spoil && (t.is_floating_point() || t.is_complex())) host(t).fill_(std::nan(""));
    if (look) refuse_not_finite(host(t), name, "result");
  }
  if (look)
    for (const auto& [own, alias] : call.aliases) refuse_not_finite(alias, name, "operand");
}

// ------------------------------------------------------------------------------------- how long the host computes

inline uint64_t ticks() {
#ifdef __SSE2__
  return __builtin_ia32_rdtsc();
#else
  return uint64_t(std::chrono::steady_clock::now().time_since_epoch().count());
#endif
}
inline std::array<std::atomic<uint64_t>, kMaxDevices> worked{};  // ticks in kernels, by device

struct Working {  // counts its lifetime for the device, once the device is known
  explicit Working(const int& device) : device(device) {}
  ~Working() {
    if (device >= 0) worked[device].fetch_add(ticks() - began, std::memory_order_relaxed);
  }
  const int& device;
  const uint64_t began = ticks();
};

inline void bind_strict(py::module& m) {
  m.def("set_judge", [](py::object f) { judge = new py::object(std::move(f)); });
  m.def("ticks", &ticks);
  m.def("worked", [](int64_t i) { return worked[seen(i)].load(); });
}

}  // namespace sdaa
