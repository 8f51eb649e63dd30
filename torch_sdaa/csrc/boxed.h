// One kernel for every operator that has a CPU kernel: it runs that on the same bytes.
#pragma once
#include "alias.h"
#include "common.h"
#include "device.h"
#include "log.h"
#include "strict.h"
#include "threads.h"

namespace sdaa {

inline std::mutex denied_lock;
inline std::set<std::string> denied;  // operators the device is told not to have: "aten::mm"
inline std::atomic<bool> any_denied{false};

inline void check_denied(const c10::OperatorHandle& op) {
  if (!any_denied) return;
  std::lock_guard<std::mutex> hold(denied_lock);
  TORCH_CHECK_NOT_IMPLEMENTED(!denied.count(op.operator_name().name), "Could not run '", op.operator_name(),
                              "' with arguments from the 'SDAA' backend: the device has no kernel for it. Run it on the CPU "
                              "(.cpu() before it, .sdaa() after), or give the device one with torch.library");
}

inline bool takes_host_indices(const c10::OperatorHandle& op) {
  static const std::set<std::string> all = {"aten::index", "aten::index_put_", "aten::_index_put_impl_", "aten::index_put"};
  return all.count(op.operator_name().name) > 0;
}

// One call: which tensors of the device stand behind which aliases.
struct Call {
  explicit Call(const c10::OperatorHandle& op) : op(op), hash(mixed(0, reinterpret_cast<uintptr_t>(&op.schema()))) {}

  const c10::OperatorHandle& op;
  int device = -1;
  uint64_t hash;
  bool sparse = false, host_operand = false;
  c10::SmallVector<std::pair<Tensor, Tensor>, 8> aliases;  // the device's tensor, the host's

  Tensor in(const Tensor& t) {
    if (!t.defined()) return t;
    if (!on_card(t)) {
      host_operand |= t.is_cpu() && t.dim() > 0;
      return t;
    }
    TORCH_CHECK(device < 0 || t.device().index() == device,
                "Expected all tensors to be on the same device, but found at least two devices, sdaa:", device, " and ",
                t.device(), "! (", op.operator_name(), "; move one with .to())");
    device = t.device().index();
    hash = mixed(hash, t);
    for (auto& [own, alias] : aliases)
      if (own.is_same(t)) return alias;
    if (t._is_zerotensor()) {
      auto zeros = at::detail::empty_cpu(t.sizes(), t.scalar_type());
      zeros.zero_();
      return zeros;
    }
    if (t.is_sparse()) {
      sparse = true;
      aliases.emplace_back(t, sparse_like(t, host(t._indices()), host(t._values()), at::kCPU));
    } else if (t.has_storage()) {
      aliases.emplace_back(t, host(t));
    } else {
      return t;
    }
    return aliases.back().second;
  }

  Tensor out(const Tensor& t) {
    if (!t.defined() || t.device().type() != at::kCPU || device < 0) return t;
    hash = mixed(hash, t);
    for (auto& [own, alias] : aliases)
      if (alias.is_same(t)) return own;
    if (t.is_sparse()) return sparse_like(t, out(t._indices()), out(t._values()), Device(kSdaa, DeviceIndex(device)));
    if (!t.has_storage() || t.is_sparse_csr()) return t;
    for (auto& [own, alias] : aliases)
      if (!alias.is_sparse() && alias.storage().unsafeGetStorageImpl() == t.storage().unsafeGetStorageImpl())
        return retagged(t, own.storage(), Device(kSdaa, DeviceIndex(device)));
    return taken(t, DeviceIndex(device));
  }

  // A kernel may have given an alias other memory or another shape.
  void write_back_all() {
    for (auto& [own, alias] : aliases) {
      if (!own.is_sparse()) {
        write_back(own, alias, DeviceIndex(device));
        continue;
      }
      auto* impl = static_cast<at::SparseTensorImpl*>(own.unsafeGetTensorImpl());
      auto indices = out(alias._indices()), values = out(alias._values());
      if (indices.is_same(own._indices())) continue;
      impl->resize_(alias.sparse_dim(), alias.dense_dim(), alias.sizes());
      impl->set_indices_and_values_unsafe(indices, values);
      impl->set_coalesced(alias.is_coalesced());
    }
  }
};

// Turns tensors among the arguments into aliases, and devices and generators into the host's.
inline void arguments_to_host(Call& call, torch::jit::Stack& stack, size_t base) {
  const auto& arguments = call.op.schema().arguments();
  int asked = -1;
  bool names_device = false;
  for (size_t k = 0; k < arguments.size(); k++) {
    auto& v = stack[base + k];
    if (v.isTensor()) {
      v = call.in(v.toTensor());
    } else if (v.isTensorList()) {
      auto all = v.toTensorVector();
      for (auto& t : all) t = call.in(t);
      v = c10::List<Tensor>(std::move(all));
    } else if (v.isOptionalTensorList()) {
      c10::List<std::optional<Tensor>> all;
      for (const std::optional<Tensor>& t : v.toOptionalTensorVector()) all.push_back(t ? std::optional(call.in(*t)) : t);
      v = std::move(all);
    } else if (v.isDevice()) {
      const auto d = v.toDevice();
      if (d.type() == kSdaa) {
        asked = resolved(d.index());
        names_device = true;
      }
      v = Device(at::kCPU);
    } else if (v.isGenerator()) {
      auto generator = v.toGenerator();
      if (generator.device().type() == kSdaa) v = host_generator(generator);
    }
  }
  if (names_device) call.device = asked;
  TORCH_CHECK(!call.host_operand || call.device < 0 || takes_host_indices(call.op),
              "Expected all tensors to be on the same device, but found at least two devices, sdaa:", call.device,
              " and cpu! (", call.op.operator_name(), "; move one with .to())");
  if (call.device < 0) call.device = current;
  for (size_t k = 0; k < arguments.size(); k++) {
    auto& v = stack[base + k];
    if (v.isNone() && arguments[k].name() == "generator" && arguments[k].type()->kind() == c10::TypeKind::OptionalType)
      v = host_generator(default_generator(DeviceIndex(call.device)));
    if (arguments[k].name() == "pin_memory" && !v.isNone()) v = c10::IValue();
  }
}

inline void results_to_device(Call& call, torch::jit::Stack& stack) {
  const size_t returns = call.op.schema().returns().size(), base = stack.size() - returns;
  for (size_t k = 0; k < returns; k++) {
    auto& v = stack[base + k];
    if (v.isTensor()) {
      v = call.out(v.toTensor());
    } else if (v.isTensorList()) {
      auto all = v.toTensorVector();
      for (auto& t : all) t = call.out(t);
      v = c10::List<Tensor>(std::move(all));
    }
  }
}

inline void boxed_kernel(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  check_denied(op);
  Call call(op);
  Working working(call.device);
  arguments_to_host(call, *stack, stack->size() - op.schema().arguments().size());
  take_owners_state();
  if (!call.sparse && op.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU))
    op.callBoxedForDispatchKey(c10::DispatchKey::CPU, *stack);
  else
    op.callBoxed(stack);
  call.write_back_all();
  results_to_device(call, *stack);
  if (watchful.load(std::memory_order_relaxed)) inspect(call, *stack);
  const auto device = DeviceIndex(call.device);
  launched(What::kernel, call.hash, device, int32_t(streams[device]), [&] {
    Signature made{op.operator_name().name, {}, {}, -1};
    for (auto& [own, alias] : call.aliases) add_meta(made.inputs, own);
    const size_t base = stack->size() - op.schema().returns().size();
    for (size_t k = base; k < stack->size(); k++) {
      const auto& v = (*stack)[k];
      if (v.isTensor()) add_meta(made.outputs, v.toTensor());
      if (v.isTensorList())
        for (const Tensor& t : v.toTensorVector()) add_meta(made.outputs, t);
    }
    return made;
  });
}

inline void bind_boxed(py::module& m) {
  m.def("deny", [](std::set<std::string> names) {
    std::lock_guard<std::mutex> hold(denied_lock);
    any_denied = !names.empty();
    denied = std::move(names);
  });
  m.def("host_alias", [](const Tensor& t) { return host(t); });
}

}  // namespace sdaa
