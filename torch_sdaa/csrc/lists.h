// Operators on lists of tensors (aten::_foreach_...): one launch for the whole list, as on cards with kernels for many tensors.
#pragma once
#include "boxed.h"
#include "common.h"

namespace sdaa {

// Whether one launch is possible: tensors of one device that are not composed, the first list's of one dtype.
inline bool one_launch(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  const size_t count = op.schema().arguments().size();
  std::optional<Device> device;
  std::optional<c10::ScalarType> dtype;
  auto fits = [&](const Tensor& t) {
    if (!t.defined() || !on_card(t) || compound(t) || t._is_zerotensor()) return false;
    if (!device) device = t.device();
    return *device == t.device();
  };
  for (size_t k = stack.size() - count; k < stack.size(); k++) {
    const auto& v = stack[k];
    if (v.isTensor() && v.toTensor().defined() && !(v.toTensor().is_cpu() && v.toTensor().dim() == 0) && !fits(v.toTensor()))
      return false;
    if (!v.isTensorList()) continue;
    const bool first = !dtype;
    for (const Tensor& t : v.toTensorVector()) {
      if (!fits(t)) return false;
      if (!dtype) dtype = t.scalar_type();
      if (first && *dtype != t.scalar_type()) return false;
    }
  }
  return device.has_value();
}

struct ListKernel final : c10::OperatorKernel {
  BoxedKernel whole{c10::DispatchKey::CPU};
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
    if (one_launch(op, *stack)) return whole(op, keys, stack);
    check_denied(op);
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);  // PyTorch's steps, tensor by tensor
  }
};

// Those that PyTorch composes on every device of one call per tensor. Products stay so: each has its own shape.
inline int register_lists(torch::Library& m) {
  int count = 0;
  for (const auto& name : c10::Dispatcher::singleton().getRegistrationsForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd)) {
    const auto& overload = name.overload_name;
    const bool out = overload.size() >= 3 && overload.compare(overload.size() - 3, 3, "out") == 0;
    if (name.name.rfind("aten::_foreach_", 0) != 0 || out || name.name == "aten::_foreach_mm") continue;
    m.impl(toString(name).substr(6).c_str(), torch::CppFunction::makeFromBoxedFunctor(std::make_unique<ListKernel>()));
    count++;
  }
  return count;
}

}  // namespace sdaa
