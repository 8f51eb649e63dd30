// One kernel for every operator that has a CPU kernel: it runs the CPU's kernel on the same bytes.
#pragma once
#include "op_faults.h"
#include "alias.h"
#include "common.h"
#include "device.h"
#include "log.h"
#include "refusals.h"
#include "strict.h"
#include "threads.h"

namespace sdaa {

inline std::mutex denied_lock;
inline std::set<std::string> denied;  // operators that the device must not have: "aten::mm"
inline std::atomic<bool> any_denied{false};

inline void check_denied(const c10::OperatorHandle& op) {
  if (!any_denied) return;
  std::lock_guard<std::mutex> hold(denied_lock);
  if (denied.count(op.operator_name().name)) refuse(op);
}

// Facts about an operator for the boxed kernel, read once from its schema.
struct Facts {
  explicit Facts(const c10::OperatorHandle& op)
      : hash(mixed(0, reinterpret_cast<uintptr_t>(&op.schema()))),
        arguments(uint32_t(op.schema().arguments().size())),
        returns(uint32_t(op.schema().returns().size())),
        mutates(op.schema().is_mutable()) {
    static const std::set<std::string> mixing = {"aten::_nested_from_padded", "aten::_nested_view_from_buffer"};
    static const std::set<std::string> indexing = {"aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_"};
    takes_host_tensors = mixing.count(op.operator_name().name) > 0;
    indexes = indexing.count(op.operator_name().name) > 0;
    drops = op.operator_name() == c10::OperatorName("aten::native_dropout", "");
    drops_backward = op.operator_name() == c10::OperatorName("aten::native_dropout_backward", "");
    sees_gradients = op.operator_name().name == "aten::_sparse_mm_reduce_impl";
    counts = op.operator_name() == c10::OperatorName("aten::histc", "");
    const bool of_classes = op.operator_name().name.rfind("aten::nll_loss", 0) == 0;
    for (uint32_t k = 0; k < arguments; k++) {
      const auto& argument = op.schema().arguments()[k];
      const auto kind = argument.type()->kind() == c10::TypeKind::OptionalType
                            ? argument.type()->castRaw<c10::OptionalType>()->getElementType()->kind()
                            : argument.type()->kind();
      if (kind == c10::TypeKind::TensorType || kind == c10::TypeKind::ListType || kind == c10::TypeKind::DeviceObjType ||
          kind == c10::TypeKind::GeneratorType || kind == c10::TypeKind::AnyType)
        looked_at.push_back(k);
      if (argument.alias_info() && argument.alias_info()->isWrite()) written |= uint64_t(1) << std::min<uint32_t>(k, 63);
      if (argument.name() == "generator" && argument.type()->kind() == c10::TypeKind::OptionalType) generator = int32_t(k);
      takes_generator |= kind == c10::TypeKind::GeneratorType;
      if (argument.name() == "pin_memory") pin = int32_t(k);
      if (of_classes && argument.name() == "target") classes = int32_t(k);
    }
    // it has a dropout probability among its arguments, and only accepts zero
    draws_unasked = !takes_generator && op.hasTag(at::Tag::nondeterministic_seeded) && !drops &&
                    op.operator_name().name != "aten::_scaled_dot_product_flash_attention_for_cpu";
  }
  uint64_t hash;
  uint32_t arguments, returns;
  bool mutates, takes_host_tensors = false, sees_gradients = false;
  bool indexes = false;                       // takes indices on the host together with a tensor of the device
  uint64_t written = 0;                       // bit k: argument k is written to
  bool drops = false, drops_backward = false;  // native_dropout and its backward
  bool takes_generator = false;
  bool counts = false;                         // histc
  bool draws_unasked = false;                  // random, from the CPU's default generator: it accepts no other
  int32_t generator = -1, pin = -1;           // positions of the arguments of these names
  int32_t classes = -1;                       // position of a target that holds class indices
  c10::SmallVector<uint32_t, 8> looked_at;    // positions of arguments that can hold tensors, devices or generators
};

// The tensor with the elements that a kernel computes with: the values of a composed tensor.
inline Tensor elements(const Tensor& t) {
  if (!t.defined() || !compound(t)) return t;
  if (t.is_nested()) return at::native::get_nested_tensor_impl(t)->get_unsafe_storage_as_tensor();
  return t.is_sparse() ? t._values() : at::sparse_csr::get_sparse_csr_impl(t)->values();
}

// One call: the tensors of the device and their aliases.
struct Call {
  Call(const c10::OperatorHandle& op, const Facts& facts, c10::DispatchKey kind)
      : op(op), facts(facts), kind(kind), hash(facts.hash) {}

  const c10::OperatorHandle& op;
  const Facts& facts;
  bool host_operand = false;
  bool writes = false;  // the current argument is written to
  bool to_host = false;  // results are requested on the host
  std::optional<c10::ScalarType> cast;  // of the result
  const c10::DispatchKey kind;  // the kernel to call: CPU, SparseCPU, ...
  int device = -1;
  uint64_t hash;
  c10::SmallVector<std::pair<Tensor, Tensor>, 8> aliases;  // the device's tensor, the host's

  // Lists can have hundreds of tensors: above this number they are found by address, not one by one.
  static constexpr size_t kFew = 16;
  std::unordered_map<const void*, size_t> places;  // of tensors and of their storages in `aliases`
  size_t placed = 0;

  const std::pair<Tensor, Tensor>* among_many(const Tensor& t) {
    for (; placed < aliases.size(); placed++) {
      const auto& own = aliases[placed].first;
      places.emplace(own.unsafeGetTensorImpl(), placed);
      if (!compound(own)) places[own.storage().unsafeGetStorageImpl()] = placed;
    }
    auto found = places.find(t.unsafeGetTensorImpl());
    if (found == places.end() && !compound(t)) found = places.find(t.storage().unsafeGetStorageImpl());
    return found == places.end() ? nullptr : &aliases[found->second];
  }

  Tensor in(const Tensor& t) {
    if (!t.defined()) return t;
    if (!on_card(t)) {
      TORCH_CHECK(t.is_cpu(), "Expected all tensors to be on the same device, but found at least two devices, sdaa and ",
                  t.device(), "! (", op.operator_name(), ")");
      host_operand |= t.dim() > 0 || writes;  // a number may be on the host, a result may not
      return t;
    }
    TORCH_CHECK(device < 0 || t.device().index() == device,
                "Expected all tensors to be on the same device, but found at least two devices, sdaa:", device, " and ",
                t.device(), "! (", op.operator_name(), "; move one with .to())");
    device = t.device().index();
    hash = mixed(hash, compound(t) ? elements(t) : t);
    const std::pair<Tensor, Tensor>* beside = nullptr;
    if (aliases.size() < kFew) {
      for (auto& known : aliases) {
        if (known.first.is_same(t)) return known.second;
        if (together(t, known.first)) beside = &known;
      }
    } else if (const auto* known = among_many(t)) {
      if (known->first.is_same(t)) return known->second;
      beside = known;
    }
    if (t._is_zerotensor()) {
      auto zeros = at::detail::empty_cpu(t.sizes(), t.scalar_type());
      zeros.zero_();
      return zeros;
    }
    aliases.emplace_back(t, beside ? retagged(t, beside->second.storage(), at::kCPU) : host(t));
    // a kernel that skips results that only a gradient needs
    if (facts.sees_gradients && t.requires_grad()) aliases.back().second.set_requires_grad(true);
    return aliases.back().second;
  }

  Tensor out(const Tensor& t) {
    if (!t.defined() || t.device().type() != at::kCPU || device < 0 || to_host) return t;
    hash = mixed(hash, compound(t) ? elements(t) : t);
    for (auto& [own, alias] : aliases)
      if (alias.is_same(t)) return own;
    return owned(t);
  }

  // A result as a tensor of the device: over the storage that it shares, or its own.
  Tensor owned(const Tensor& t) {
    const Device whole(kSdaa, DeviceIndex(device));
    if (compound(t)) return rebuilt(t, whole, [&](const Tensor& part) { return owned(part); });
    if (!t.has_storage()) return t;
    if (auto* storage = shown_by(t.storage()))
      return retagged(t, Storage(c10::intrusive_ptr<StorageImpl>::reclaim_copy(storage)), whole);
    for (auto& [own, alias] : aliases)
      if (!compound(alias) && alias.storage().unsafeGetStorageImpl() == t.storage().unsafeGetStorageImpl())
        return retagged(t, own.storage(), whole);
    // a quantiser's values stay on the host
    return taken(kind == c10::DispatchKey::QuantizedCPU && t.storage().use_count() > 1 ? t.clone() : t, DeviceIndex(device));
  }

  // A kernel may have given an alias other memory or another shape.
  void write_back_all() {
    for (auto& [own, alias] : aliases) {
      if (!compound(own)) {
        write_back(own, alias, DeviceIndex(device));
      } else if (own.is_sparse()) {
        auto* impl = static_cast<at::SparseTensorImpl*>(own.unsafeGetTensorImpl());
        auto indices = owned(alias._indices()), values = owned(alias._values());
        if (same(indices, own._indices()) && same(values, own._values()) && alias.is_coalesced() == own.is_coalesced()) continue;
        impl->resize_(alias.sparse_dim(), alias.dense_dim(), alias.sizes());
        impl->set_indices_and_values_unsafe(indices, values);
        impl->set_coalesced(alias.is_coalesced());
      } else if (!own.is_nested()) {
        auto *to = at::sparse_csr::get_sparse_csr_impl(own), *from = at::sparse_csr::get_sparse_csr_impl(alias);
        auto values = owned(from->values());
        if (!same(values, to->values()) || own.sizes() != alias.sizes())
          to->set_member_tensors(owned(from->compressed_indices()), owned(from->plain_indices()), values, alias.sizes());
      }
    }
  }

  static bool same(const Tensor& a, const Tensor& b) {
    return a.storage().unsafeGetStorageImpl() == b.storage().unsafeGetStorageImpl() && a.sizes() == b.sizes() &&
           a.strides() == b.strides() && a.storage_offset() == b.storage_offset();
  }
};

// Only indices may be on the host if the indexed tensor is not.
inline void check_indexed(const Facts& facts, const torch::jit::Stack& stack, size_t base) {
  const auto& self = stack[base].toTensor();
  TORCH_CHECK(on_card(self), "Expected all tensors to be on the same device, but found at least two devices, ", self.device(),
              " and sdaa! (the indexed tensor is on the ", self.device(), ": its indices and values must be too; move one "
              "with .to())");
  if (facts.arguments < 3 || !stack[base + 2].isTensor()) return;
  const auto& values = stack[base + 2].toTensor();
  TORCH_CHECK(on_card(values) || values.dim() == 0, "Expected all tensors to be on the same device, but found at least two "
              "devices, ", self.device(), " and cpu! (the values of an index_put; move them with .to())");
}

// Replaces tensors among the arguments by aliases, and devices and generators by the host's.
inline void arguments_to_host(Call& call, torch::jit::Stack& stack, size_t base) {
  const auto& facts = call.facts;
  int asked = -1;
  bool names_device = false, indexed = true;
  if (facts.indexes) check_indexed(facts, stack, base);
  for (const uint32_t k : facts.looked_at) {
    auto& v = stack[base + k];
    call.writes = facts.written >> std::min<uint32_t>(k, 63) & 1;
    if (v.isTensor()) {
      v = call.in(v.toTensor());
      if (facts.indexes && k == 0) indexed = call.device >= 0;
    } else if (v.isTensorList()) {
      auto all = v.toTensorVector();
      for (auto& t : all) t = call.in(t);
      v = c10::List<Tensor>(std::move(all));
    } else if (v.isOptionalTensorList()) {
      const bool before = call.host_operand;
      c10::List<std::optional<Tensor>> all;
      for (const std::optional<Tensor>& t : v.toOptionalTensorVector()) all.push_back(t ? std::optional(call.in(*t)) : t);
      v = std::move(all);
      if (facts.indexes) call.host_operand = before;
    } else if (v.isDevice()) {
      const auto d = v.toDevice();
      if (d.type() == kSdaa) {
        asked = resolved(d.index());
        names_device = true;
      } else if (!call.aliases.empty()) {
        call.to_host = d.is_cpu();
      }
      v = Device(at::kCPU);
    } else if (v.isGenerator()) {
      auto generator = v.toGenerator();
      TORCH_CHECK(generator.device().type() == kSdaa, "Expected a '", kSdaa, "' device type for generator but found '",
                  generator.device().type(), "'; create one with torch.Generator(device='sdaa')");
      v = host_generator(generator);
    }
  }
  if (names_device) call.device = asked;
  TORCH_CHECK(call.device < 0 || (indexed && (!call.host_operand || names_device || facts.takes_host_tensors)),
              "Expected all tensors to be on the same device, but found at least two devices, sdaa:", call.device,
              " and cpu! (", call.op.operator_name(), "; move one with .to())");
  if (call.device < 0) call.device = current;
  if (facts.generator >= 0 && stack[base + facts.generator].isNone())
    stack[base + facts.generator] = host_generator(default_generator(DeviceIndex(call.device)));
  if (facts.pin >= 0) {
    auto& pin = stack[base + facts.pin];
    if (names_device) refuse_pinning(pin.toOptional<bool>());
    pin = c10::IValue();
  }
  // Integers, which the CPU's kernel does not support and CUDA's does: mixtures of experts use them on every device but
  // the CPU.
  if (facts.counts && at::isIntegralType(stack[base].toTensor().scalar_type(), false)) {
    call.cast = stack[base].toTensor().scalar_type();
    stack[base] = stack[base].toTensor().to(at::kDouble);
  }
  // Scripts for such cards pass int32 targets (004: target.to(torch.int32)), which the CPU's kernel does not accept.
  if (facts.classes >= 0 && stack[base + facts.classes].toTensor().scalar_type() == at::kInt)
    stack[base + facts.classes] = stack[base + facts.classes].toTensor().to(at::kLong);
}

inline void results_to_device(Call& call, torch::jit::Stack& stack) {
  for (size_t k = stack.size() - call.facts.returns; k < stack.size(); k++) {
    auto& v = stack[k];
    if (v.isTensor()) {
      v = call.out(v.toTensor());
    } else if (v.isTensorList()) {
      auto all = v.toTensorVector();
      for (auto& t : all) t = call.out(t);
      v = c10::List<Tensor>(std::move(all));
    }
  }
}

// aten::native_dropout takes no generator: here it uses the device's, with the steps of the CPU's dropout.
inline void dropout(torch::jit::Stack& stack, DeviceIndex device) {
  const auto train = torch::jit::pop(stack).toOptional<bool>();
  const double p = torch::jit::pop(stack).toDouble();
  const auto x = torch::jit::pop(stack).toTensor();
  Tensor mask, y = x;
  if (x.numel() == 0 || (train && !*train)) {
    mask = at::ones_like(x, x.options().dtype(at::kBool));
    if (x.numel()) y = x.clone();
  } else {
    mask = at::empty_like(x, x.options().dtype(at::kBool)).bernoulli_(1 - p, host_generator(default_generator(device)));
    y = x.mul(p == 1 ? mask.to(x.scalar_type()) : mask.to(x.scalar_type()).div_(1 - p));
  }
  torch::jit::push(stack, std::move(y), std::move(mask));
}

// scale: 1 / (1 - p), or 0 if everything was dropped.
inline void dropout_backward(torch::jit::Stack& stack) {
  const double scale = torch::jit::pop(stack).toDouble();
  const auto mask = torch::jit::pop(stack).toTensor(), grad = torch::jit::pop(stack).toTensor();
  auto noise = mask.to(grad.scalar_type());
  torch::jit::push(stack, grad.mul(scale == 0 ? noise.zero_() : noise.div_(1 / scale)));
}

// Runs the CPU's kernel on aliases of the CPU.
inline void call_host(const Call& call, torch::jit::Stack* stack) {
  const auto& op = call.op;
  const auto key = call.kind;
  TORCH_CHECK_NOT_IMPLEMENTED(
      op.hasComputedKernelForDispatchKey(key), "Could not run '", op.operator_name(),
      "' with arguments from the 'SDAA' backend: PyTorch has no kernel for the host (", key,
      "), whose kernels the device runs. Use other operators, or register a kernel for the device: "
      "torch.library.impl('", op.operator_name(), "', 'sdaa', your_function)");
  if (key == c10::DispatchKey::CPU && call.facts.drops) return dropout(*stack, DeviceIndex(call.device));
  if (key == c10::DispatchKey::CPU && call.facts.drops_backward) return dropout_backward(*stack);
  std::optional<Lent> lent;
  if (call.facts.draws_unasked) lent.emplace(DeviceIndex(call.device));
  op.redispatchBoxed(c10::DispatchKeySet(key), stack);
  if (call.cast) stack->back() = stack->back().toTensor().to(*call.cast);
}

// Corrupts the tensors that a call wrote or created; views of other tensors are not changed.
inline void spoil_results(const c10::OperatorHandle& op, const Struck& struck, const std::vector<c10::IValue>& written,
                          const torch::jit::Stack& stack) {
  for (const auto& one : written) spoil(one, struck);
  const auto& returns = op.schema().returns();
  for (size_t k = 0; k < returns.size(); k++)
    if (!returns[k].alias_info()) spoil(stack[stack.size() - returns.size() + k], struck);
}

inline void run_boxed(const c10::OperatorHandle& op, const Facts& facts, c10::DispatchKey kind, torch::jit::Stack* stack) {
  Within span(Doing::runtime, "kernel");
  check_denied(op);
  Call call(op, facts, kind);
  Working working(call.device);
  arguments_to_host(call, *stack, stack->size() - facts.arguments);
  take_owners_state();
  Struck struck;
  std::vector<c10::IValue> written;  // aliases of what it writes: with its results, the targets of a fault
  if (any_op_faults.load(std::memory_order_relaxed) && call.device >= 0) {
    struck = strike(op.operator_name().name, op.operator_name().overload_name, call.device);
    for (size_t k = 0; struck && k < facts.arguments; k++) {
      const auto* alias = op.schema().arguments()[k].alias_info();
      if (alias && alias->isWrite()) written.push_back((*stack)[stack->size() - facts.arguments + k]);
    }
  }
  call_host(call, stack);
  if (struck) spoil_results(op, struck, written, *stack);
  if (facts.mutates) call.write_back_all();
  results_to_device(call, *stack);
  if (watchful.load(std::memory_order_relaxed)) inspect(call, *stack);
  const auto device = DeviceIndex(call.device);
  launched(What::kernel, call.hash, device, int32_t(streams[device]), [&] {
    Signature made{op.operator_name().name, {}, {}, -1};
    for (auto& [own, alias] : call.aliases) add_meta(made.inputs, elements(own));
    for (size_t k = stack->size() - facts.returns; k < stack->size(); k++) {
      const auto& v = (*stack)[k];
      if (v.isTensor()) add_meta(made.outputs, elements(v.toTensor()));
      if (v.isTensorList())
        for (const Tensor& t : v.toTensorVector()) add_meta(made.outputs, elements(t));
    }
    return made;
  });
}

// The kernel of one operator, with the facts about it.
struct BoxedKernel final : c10::OperatorKernel {
  explicit BoxedKernel(c10::DispatchKey kind) : kind(kind) {}
  const c10::DispatchKey kind;  // the kernel to run
  std::atomic<const Facts*> known{nullptr};
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
    const Facts* facts = known.load(std::memory_order_acquire);
    if (!facts) {
      const auto* mine = new Facts(op);
      if (!known.compare_exchange_strong(facts, mine)) delete mine;
      facts = known.load();
    }
    run_boxed(op, *facts, kind, stack);
  }
  ~BoxedKernel() override { delete known.load(); }
};

inline torch::CppFunction boxed_kernel(c10::DispatchKey kind) {
  return torch::CppFunction::makeFromBoxedFunctor(std::make_unique<BoxedKernel>(kind));
}

// The kernel of custom operators that have only a CPU kernel.
template <c10::DispatchKey kind>
void boxed_fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  static thread_local std::unordered_map<std::string, std::unique_ptr<Facts>> known;  // the address of a handle may be reused
  auto& facts = known[toString(op.operator_name())];
  if (!facts || facts->arguments != op.schema().arguments().size()) facts = std::make_unique<Facts>(op);
  run_boxed(op, *facts, kind, stack);
}

inline void bind_boxed(py::module& m) {
  m.def("deny", [](std::set<std::string> names) {
    std::lock_guard<std::mutex> hold(denied_lock);
    any_denied = !names.empty();
    denied = std::move(names);
  });
  m.def("host_alias", [](const Tensor& t) { return host(t); });
  m.def("take_data", &take_data);
}

}  // namespace sdaa
