// Injected faults of single operators: the n-th call on a device raises an error, or its results are NaN or perturbed.
#pragma once
#include <ATen/ops/arange.h>
#include "faults.h"

namespace sdaa {

struct OpFault {
  std::string kind, op;  // op: "aten::add", any overload, or "aten::add.Tensor"
  int64_t device, call;  // the call on that device, from 0
  double size;           // relative size of the perturbation
  int64_t seen = 0;      // calls so far
};
inline std::mutex op_fault_lock;
inline std::vector<OpFault> op_faults;
inline std::atomic<bool> any_op_faults{false};

struct Struck {  // the effect on the results of one call
  bool nan = false;
  double size = 0;
  explicit operator bool() const { return nan || size; }
};

// Counts a call of an operator.
inline Struck strike(const std::string& name, const std::string& overload, int64_t device) {
  Struck found;
  std::lock_guard<std::mutex> hold(op_fault_lock);
  for (auto& fault : op_faults) {
    if (fault.device != device || (fault.op != name && fault.op != name + "." + overload)) continue;
    if (fault.seen++ != fault.call) continue;
    TORCH_CHECK(fault.kind != "deny", "sdaa:", device, " denied call ", fault.call, " of ", fault.op,
                " (an injected fault, TORCH_SDAA_OP_FAULTS)");
    if (fault.kind == "nan") found.nan = true;
    if (fault.kind == "perturb") found.size += fault.size;
  }
  return found;
}

// Makes a result NaN, or each element alternately larger and smaller; t is the host's alias.
inline void spoil(const Tensor& t, const Struck& struck) {
  if (!t.defined() || !(t.is_floating_point() || t.is_complex()) || t.layout() != c10::kStrided) return;
  if (struck.nan) {
    t.fill_(std::nan(""));
    return;
  }
  const auto turns = at::arange(t.numel(), at::kDouble).remainder(2);
  t.mul_(turns.mul(-2 * struck.size).add(1 + struck.size).reshape(t.sizes()).to(t.scalar_type()));
}

inline void spoil(const c10::IValue& v, const Struck& struck) {
  if (v.isTensor()) spoil(v.toTensor(), struck);
  if (v.isTensorList())
    for (const Tensor& t : v.toTensorVector()) spoil(t, struck);
}

inline void bind_op_faults(py::module& m) {
  m.def("plant_op_fault", [](std::string kind, std::string op, int64_t device, int64_t call, double size) {
    std::lock_guard<std::mutex> hold(op_fault_lock);
    op_faults.push_back({std::move(kind), std::move(op), seen(device), call, size});
    any_op_faults = true;
  });
  m.def("clear_op_faults", [] {
    std::lock_guard<std::mutex> hold(op_fault_lock);
    op_faults.clear();
    any_op_faults = false;
  });
  m.def("op_fault_calls", [] {  // of each fault: number of calls of its operator
    std::lock_guard<std::mutex> hold(op_fault_lock);
    std::vector<int64_t> calls;
    for (const auto& fault : op_faults) calls.push_back(fault.seen);
    return calls;
  });
}

}  // namespace sdaa
