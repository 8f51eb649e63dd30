// Operators that the boxed kernel cannot serve: memory, copies, views, and those without a CPU kernel.
#pragma once
#include "op_faults.h"
#include "alias.h"
#include "boxed.h"
#include "common.h"
#include "lists.h"
#include "norm.h"

namespace sdaa {

using Dtype = std::optional<c10::ScalarType>;
using LayoutOption = std::optional<c10::Layout>;
using DeviceOption = std::optional<Device>;
using Flag = std::optional<bool>;
using FormatOption = std::optional<c10::MemoryFormat>;

// --------------------------------------------------------------------------------------------------- memory, copies

// With deterministic algorithms, uninitialised memory is filled as on the CPU: NaN, or the largest number.
inline Tensor filled(Tensor t) {
  auto& context = at::globalContext();
  if (C10_UNLIKELY(context.deterministicAlgorithms() && context.deterministicFillUninitializedMemory())) {
    auto alias = host(t);
    at::native::fill_empty_deterministic_(alias);
  }
  return t;
}

inline Tensor empty(IntArrayRef size, Dtype dtype, LayoutOption, DeviceOption device, Flag pin, FormatOption format) {
  Within span(Doing::runtime, "allocate");
  refuse_pinning(pin);
  c10::DeviceGuard guard(c10::device_or_default(device));
  return filled(at::detail::empty_generic(size, &allocator(), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                          c10::dtype_or_default(dtype), format));
}

inline Tensor empty_strided(IntArrayRef size, IntArrayRef stride, Dtype dtype, LayoutOption, DeviceOption device, Flag pin) {
  Within span(Doing::runtime, "allocate");
  refuse_pinning(pin);
  c10::DeviceGuard guard(c10::device_or_default(device));
  return filled(at::detail::empty_strided_generic(size, stride, &allocator(), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                                  c10::dtype_or_default(dtype)));
}

inline Tensor copy_from(const Tensor& from, const Tensor& to, bool non_blocking) {
  Within span(Doing::runtime, "copy");
  take_owners_state();
  auto written = host(to);
  written.copy_(host_beside(from, to, written));
  copied(from, to, non_blocking);
  if (strict.load(std::memory_order_relaxed)) refuse_not_finite(written, "aten::copy_", "result");
  return to;
}

inline Tensor copy_from_and_resize(const Tensor& from, const Tensor& to) {
  if (to.sizes() != from.sizes()) const_cast<Tensor&>(to).resize_(from.sizes());
  return copy_from(from, to, false);
}

// On other devices it copies on the first write; here it copies immediately, as memory of a kernel cannot be shared so.
inline Tensor lazy_clone(const Tensor& t) {
  const auto& from = t.storage();
  auto bytes = empty({int64_t(from.nbytes())}, at::kByte, {}, t.device(), {}, {});
  if (from.nbytes()) std::memcpy(bytes.mutable_data_ptr(), from.data(), from.nbytes());
  auto made = empty({0}, t.scalar_type(), {}, t.device(), {}, {});
  return made.set_(bytes.storage(), t.storage_offset(), t.sizes(), t.strides());
}

inline const Tensor& resize(const Tensor& self, IntArrayRef size, FormatOption format) {
  auto alias = host(self);
  alias.resize_(size, format);
  write_back(self, alias, self.device().index());
  return self;
}

// ------------------------------------------------------------------------------------------------------------ views

inline Tensor& set_storage_at(Tensor& result, Storage storage, int64_t offset, IntArrayRef size, IntArrayRef stride) {
  auto* impl = result.unsafeGetTensorImpl();
  at::native::checkSetStorage(result, storage, offset, size, stride);
  std::vector<int64_t> strides(stride.begin(), stride.end());
  if (stride.data() == nullptr || stride.size() != size.size()) {
    strides.assign(size.size(), 1);
    for (int k = int(size.size()) - 2; k >= 0; k--) strides[k] = strides[k + 1] * std::max<int64_t>(size[k + 1], 1);
  }
  impl->set_sizes_and_strides(size, strides, offset);
  const auto needed = at::detail::computeStorageNbytes(size, strides, impl->itemsize(), offset);
  if (impl->numel() && needed > storage.nbytes()) {
    TORCH_CHECK(storage.unsafeGetStorageImpl()->resizable(), "Trying to resize storage that is not resizable");
    hooks().resizePrivateUse1Bytes(impl->storage(), needed);
  }
  return result;
}
inline Tensor& set_storage(Tensor& result, Storage storage) {
  const int64_t count = int64_t(storage.nbytes()) / result.element_size();
  return set_storage_at(result, std::move(storage), 0, {count}, {1});
}
inline Tensor& set_tensor(Tensor& result, const Tensor& other) {
  if (result.unsafeGetTensorImpl() == other.unsafeGetTensorImpl()) return result;
  return set_storage_at(result, other.storage(), other.storage_offset(), other.sizes(), other.strides());
}
inline Tensor& set_nothing(Tensor& result) {
  return set_tensor(result, empty({0}, result.scalar_type(), {}, result.device(), {}, {}));
}

// A tensor of zeros without memory, used by autograd's formulas.
struct NoMemory final : c10::Allocator {
  explicit NoMemory(Device device) : device(device) {}
  Device device;
  static void nothing(void*) {}
  c10::DataPtr allocate(size_t) override { return {nullptr, nullptr, &nothing, device}; }
  c10::DeleterFnPtr raw_deleter() const override { return &nothing; }
  void copy_data(void*, const void*, size_t) const override {}
};
inline Tensor efficientzerotensor(IntArrayRef size, Dtype dtype, LayoutOption, DeviceOption device, Flag) {
  static const std::vector<NoMemory*> none = [] {
    std::vector<NoMemory*> made;
    for (int i = 0; i < kMaxDevices; i++) made.push_back(new NoMemory(Device(kSdaa, DeviceIndex(i))));
    return made;
  }();
  const auto index = resolved(c10::device_or_default(device).index());
  const auto keys = c10::DispatchKeySet(c10::DispatchKey::PrivateUse1) | c10::DispatchKeySet(c10::DispatchKey::ZeroTensor);
  return at::detail::empty_generic(size, none[index], keys, c10::dtype_or_default(dtype), std::nullopt);
}

// ----------------------------------------------------------------------------------------- without a CPU kernel's key

inline void log_convolution(const char* name, std::initializer_list<const Tensor*> inputs, const Tensor& output,
                            double flops) {
  const auto device = output.device().index();
  auto hash = mixed(mixed(0, reinterpret_cast<uintptr_t>(name)), uint64_t(flops));
  for (const auto* t : inputs) hash = mixed(hash, *t);
  launched(What::kernel, mixed(hash, output), device, int32_t(streams[device]), [&] {
    Signature made{name, {}, {}, flops};
    for (const auto* t : inputs) add_meta(made.inputs, *t);
    add_meta(made.outputs, output);
    return made;
  });
}

// A multiply-add counts two; each element of the output (transposed: of the input) meets the weights of one output channel.
inline double convolution_flops(const Tensor& meets, const Tensor& weight) {
  return 2.0 * double(meets.numel()) * double(weight.numel()) / double(std::max<int64_t>(weight.size(0), 1));
}

inline Tensor convolution(const Tensor& x, const Tensor& w, const std::optional<Tensor>& b, IntArrayRef stride,
                          IntArrayRef padding, IntArrayRef dilation, bool transposed, IntArrayRef out_padding, int64_t groups) {
  static const Tensor none;
  Within span(Doing::runtime, "kernel");
  expect_on("aten::convolution", x.device(), {&w, b ? &*b : &none});
  take_owners_state();
  const int on = x.device().index();
  Working working(on);
  const auto bias = b && b->defined() ? std::optional(host(*b)) : b;
  auto y = taken(at::convolution(host(x), host(w), bias, stride, padding, dilation, transposed, out_padding, groups),
                 x.device().index());
  if (any_op_faults)
    if (const auto struck = strike("aten::convolution", "", on)) spoil(host(y), struck);
  log_convolution("aten::convolution", {&x, &w}, y, convolution_flops(transposed ? x : y, w));
  return y;
}

inline std::tuple<Tensor, Tensor, Tensor> convolution_backward(const Tensor& grad, const Tensor& x, const Tensor& w,
                                                               IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation,
                                                               bool transposed, IntArrayRef out_padding, int64_t groups,
                                                               std::array<bool, 3> mask) {
  Within span(Doing::runtime, "kernel");
  expect_on("aten::convolution_backward", x.device(), {&grad, &w});
  take_owners_state();
  const auto device = x.device().index();
  const int on = device;
  Working working(on);
  const std::vector<int64_t> bias{transposed ? w.size(1) * groups : w.size(0)};
  auto [gx, gw, gb] = at::convolution_backward(host(grad), host(x), host(w), c10::OptionalArrayRef<int64_t>(bias), stride,
                                               padding, dilation, transposed, out_padding, groups, mask);
  auto own = [&](const Tensor& t) { return t.defined() ? taken(t, device) : t; };
  std::tuple<Tensor, Tensor, Tensor> made{own(gx), own(gw), own(gb)};
  if (any_op_faults)
    if (const auto struck = strike("aten::convolution_backward", "", on))
      for (const auto& t : {gx, gw, gb}) spoil(t, struck);
  const double one = convolution_flops(transposed ? x : grad, w);
  const auto& shown = std::get<0>(made).defined() ? std::get<0>(made) : std::get<1>(made).defined() ? std::get<1>(made) : grad;
  log_convolution("aten::convolution_backward", {&grad, &x, &w}, shown, one * (mask[0] + mask[1]));
  return made;
}

// Whether a tensor has a forward-mode derivative; under torch.func's transforms, whether such derivatives are computed.
inline bool has_tangent(const Tensor& t) {
  if (t._fw_grad(0).defined()) return true;
  return !t.has_storage() && torch::autograd::ForwardADLevel::try_get_by_idx(0) != nullptr;
}

// The form of attention that the CPU would use; the composite operator asks by the stub, others by the operator.
inline int64_t fused_sdp_choice(const Tensor& q, const Tensor& k, const Tensor& v, const std::optional<Tensor>& mask,
                                double dropout, bool causal, std::optional<double> scale, bool grouped) {
  // a traced tensor has no memory: attention in separate operators, visible to a compiler
  if (q.unsafeGetTensorImpl()->key_set().has_any(
          c10::DispatchKeySet({c10::DispatchKey::Python, c10::DispatchKey::Functionalize})))
    return 0;  // math
  for (const auto& t : {q, k, v})
    if (has_tangent(t)) return 0;  // the fused form has no forward-mode derivative
  auto shown = [](const Tensor& t) {  // also depends on whether a gradient is required
    // a tensor of torch.func's transforms has no memory, only sizes
    Tensor alias = t.has_storage() ? host(t) : Tensor(at::detail::empty_strided_cpu(t.sizes(), t.strides(), t.scalar_type()));
    if (t.requires_grad() && at::GradMode::is_enabled()) alias.set_requires_grad(true);
    return alias;
  };
  const auto shown_mask = mask && mask->defined() ? std::optional(shown(*mask)) : std::nullopt;
  return at::_fused_sdp_choice(shown(q), shown(k), shown(v), shown_mask, dropout, causal, scale, grouped);
}

// ----------------------------------------------------------------------------------------------------------- sparse

inline std::set<std::string> register_csr_own(torch::Library& m) {
  std::set<std::string> names;
  auto impl = [&](const char* name, auto&& f) {
    m.impl(name, std::forward<decltype(f)>(f));
    names.insert(std::string("aten::") + name);
  };
  impl("crow_indices", TORCH_FN(at::native::crow_indices_sparse_csr));
  impl("col_indices", TORCH_FN(at::native::col_indices_sparse_csr));
  impl("ccol_indices", TORCH_FN(at::native::ccol_indices_sparse_csr));
  impl("row_indices", TORCH_FN(at::native::row_indices_sparse_csr));
  impl("values", TORCH_FN(at::native::values_sparse_csr));
  impl("_nnz", TORCH_FN(at::native::_nnz_sparse_csr));
  impl("sparse_dim", TORCH_FN(at::native::sparse_dim_sparse_csr));
  impl("dense_dim", TORCH_FN(at::native::dense_dim_sparse_csr));
  return names;
}

// Sizes of nested tensors are on the host.
inline std::set<std::string> register_nested_own(torch::Library& m) {
  m.impl("_nested_tensor_size", TORCH_FN(at::native::_nested_tensor_size));
  m.impl("_nested_tensor_strides", TORCH_FN(at::native::_nested_tensor_strides));
  m.impl("_nested_tensor_storage_offsets", TORCH_FN(at::native::_nested_tensor_storage_offsets));
  m.impl("_to_copy", TORCH_FN(at::native::_to_copy_nested));
  return {"aten::_to_copy", "aten::_nested_tensor_size", "aten::_nested_tensor_strides", "aten::_nested_tensor_storage_offsets"};
}

// PyTorch's function ignores the requested device if a tensor has gaps.
inline Tensor quantised_to_copy(const Tensor& t, Dtype dtype, LayoutOption layout, DeviceOption device, Flag pin,
                                bool non_blocking, FormatOption format) {
  return at::native::_to_copy(t.contiguous(), dtype, layout, device, pin, non_blocking, format);
}

inline std::set<std::string> register_quantised_own(torch::Library& m) {
  m.impl("_copy_from", copy_from);
  m.impl("as_strided", TORCH_FN(at::native::as_strided_qtensorimpl));
  m.impl("view", TORCH_FN(at::native::view));
  m.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  m.impl("_to_copy", quantised_to_copy);
  return {"aten::_to_copy", "aten::_copy_from", "aten::as_strided", "aten::view", "aten::_reshape_alias"};
}

inline Tensor sparse_with_dims(int64_t sparse, int64_t dense, IntArrayRef size, Dtype dtype, LayoutOption layout,
                               DeviceOption device, Flag pin) {
  const Device whole(kSdaa, resolved(c10::device_or_default(device).index()));
  c10::DeviceGuard guard(whole);  // a sparse tensor is created on the current device
  return at::native::new_with_dims_sparse(sparse, dense, size, dtype, layout, whole, pin);
}

inline Tensor sparse_of_parts(int64_t sparse, int64_t dense, c10::SymIntArrayRef size, const Tensor& indices,
                              const Tensor& values, Dtype dtype, LayoutOption layout, DeviceOption device, Flag pin,
                              Flag coalesced) {
  c10::DeviceGuard guard(values.device());
  return at::native::new_with_dims_and_tensor_sparse_symint(sparse, dense, size, indices, values, dtype, layout, device, pin,
                                                            coalesced);
}

// ----------------------------------------------------------------------------------------------------- registration

inline int registered = 0;

inline std::set<std::string> register_own(torch::Library& m) {
  std::set<std::string> names;
  auto impl = [&](const char* name, auto f) {
    m.impl(name, f);
    names.insert(std::string("aten::") + name);
  };
  impl("empty.memory_format", empty);
  impl("empty_strided", empty_strided);
  impl("_copy_from", copy_from);
  impl("_copy_from_and_resize", copy_from_and_resize);
  impl("resize_", resize);
  impl("_lazy_clone", lazy_clone);
  impl("set_.source_Storage", set_storage);
  impl("set_.source_Storage_storage_offset", set_storage_at);
  impl("set_.source_Tensor", set_tensor);
  impl("set_", set_nothing);
  impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));  // views are PyTorch's own, in inference mode too
  impl("view", TORCH_FN(at::native::view));
  impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  impl("unfold", TORCH_FN(at::native::unfold));
  impl("_efficientzerotensor", efficientzerotensor);
  impl("convolution_overrideable", convolution);
  impl("convolution_backward_overrideable", convolution_backward);
  impl("_fused_sdp_choice", fused_sdp_choice);
  return names;
}

inline std::set<std::string> register_sparse_own(torch::Library& m) {
  std::set<std::string> names;
  auto impl = [&](const char* name, auto&& f) {
    m.impl(name, std::forward<decltype(f)>(f));
    names.insert(std::string("aten::") + name);
  };
  impl("_sparse_coo_tensor_with_dims", sparse_with_dims);
  impl("_sparse_coo_tensor_with_dims_and_tensors", sparse_of_parts);
  impl("_values", TORCH_FN(at::native::_values_sparse));
  impl("_indices", TORCH_FN(at::native::_indices_sparse));
  impl("values", TORCH_FN(at::native::values_sparse));
  impl("indices", TORCH_FN(at::native::indices_sparse));
  impl("_nnz", TORCH_FN(at::native::_nnz_sparse));
  impl("is_coalesced", TORCH_FN(at::native::is_coalesced_sparse));
  impl("_coalesced_", TORCH_FN(at::native::_coalesced_sparse_));
  impl("sparse_dim", TORCH_FN(at::native::sparse_dim_sparse));
  impl("dense_dim", TORCH_FN(at::native::dense_dim_sparse));
  impl("copy_sparse_to_sparse_", TORCH_FN(at::native::copy_sparse_));
  impl("copy_", TORCH_FN(at::native::copy_sparse_wrapper_));
  for (const char* name : {"_dimI", "_dimV"}) names.insert(std::string("aten::") + name);
  return names;
}

inline void register_boxed(torch::Library& m, c10::DispatchKey key, const std::set<std::string>& own) {
  static const std::set<std::string> left = {"aten::_pin_memory", "aten::is_pinned", "aten::record_stream"};
  auto names = c10::Dispatcher::singleton().getRegistrationsForDispatchKey(key);
  // composed of other operators, which differ by device
  if (key == c10::DispatchKey::CPU) names.emplace_back("aten::linalg_lstsq", "");
  for (const auto& name : names) {
    const auto whole = toString(name);
    if (name.name.rfind("aten::", 0) != 0 || own.count(whole) || left.count(name.name)) continue;
    m.impl(whole.substr(6).c_str(), boxed_kernel(key));
    registered++;
  }
}

inline void register_all() {  // kept for the life of the process
  auto library = [](c10::DispatchKey key) {
    return new torch::Library(torch::Library::IMPL, "aten", key, __FILE__, __LINE__);
  };
  using Key = c10::DispatchKey;
  auto* dense = library(Key::PrivateUse1);
  auto own = register_own(*dense);
  register_norms(*dense);
  dense->impl("_nested_view_from_buffer", TORCH_FN(at::native::_nested_view_from_buffer));
  own.insert("aten::_nested_view_from_buffer");
  register_boxed(*dense, Key::CPU, own);
  registered += register_lists(*dense);
  auto* sparse = library(Key::SparsePrivateUse1);
  register_boxed(*sparse, Key::SparseCPU, register_sparse_own(*sparse));
  auto* csr = library(Key::SparseCsrPrivateUse1);
  register_boxed(*csr, Key::SparseCsrCPU, register_csr_own(*csr));
  auto* quantised = library(Key::QuantizedPrivateUse1);
  register_boxed(*quantised, Key::QuantizedCPU, register_quantised_own(*quantised));
  auto* nested = library(Key::NestedTensorPrivateUse1);
  register_boxed(*nested, Key::NestedTensorCPU, register_nested_own(*nested));
}

}  // namespace sdaa
