// Two views of the same bytes: a tensor of the device, and a host tensor for CPU kernels.
#pragma once
#include "common.h"
#include "memory.h"

namespace sdaa {

inline void drop_reference(void* context) {
  c10::intrusive_ptr<StorageImpl>::reclaim(static_cast<StorageImpl*>(context));
}

// A host storage over the same bytes, which keeps the device's storage alive. Sharing the StorageImpl is not possible: views
// created by CPU kernels take their device from the storage.
inline Storage host_storage(const Storage& storage) {
  auto* impl = storage.unsafeGetStorageImpl();
  void* data = impl->mutable_data();
  c10::raw::intrusive_ptr::incref(impl);
  return Storage(c10::make_intrusive<StorageImpl>(StorageImpl::use_byte_size_t(), impl->nbytes(),
                                                  c10::DataPtr(data, impl, &drop_reference, Device(at::kCPU)),
                                                  c10::GetCPUAllocator(), true));
}

// Returns the device's storage that a host storage aliases, or none.
inline StorageImpl* shown_by(const Storage& storage) {
  const auto& data = storage.data_ptr();
  return data.get_deleter() == &drop_reference ? static_cast<StorageImpl*>(data.get_context()) : nullptr;
}

// Replaces a tensor's contents by those of a tensor on another device, in place, like `Tensor.data =` between CPU and CUDA:
// other references (modules, optimizers, a graph) stay valid. Returns whether it was possible.
inline bool take_data(const Tensor& t, const Tensor& other) {
  auto *to = t.unsafeGetTensorImpl(), *from = other.unsafeGetTensorImpl();
  if (typeid(*to) != typeid(*from) || t.layout() != other.layout()) return false;
  if (auto* meta = torch::autograd::impl::get_autograd_meta(t)) {  // it accumulates gradients for the previous device
    std::lock_guard<std::mutex> hold(meta->mutex_);
    meta->grad_accumulator_.reset();
  }
  to->shallow_copy_from(other.getIntrusivePtr());
  return true;
}

// A tensor of the same shape and dtype over another storage.
inline Tensor retagged(const Tensor& t, Storage storage, Device device) {
  auto* from = t.unsafeGetTensorImpl();
  c10::intrusive_ptr<c10::TensorImpl> impl;
  if (!t.is_quantized()) {
    const c10::DispatchKeySet keys(device.is_cpu() ? c10::DispatchKey::CPU : c10::DispatchKey::PrivateUse1);
    impl = c10::make_intrusive<c10::TensorImpl>(std::move(storage), keys, from->dtype());
  } else {
    const c10::DispatchKeySet keys(device.is_cpu() ? c10::DispatchKey::QuantizedCPU : c10::DispatchKey::QuantizedPrivateUse1);
    impl = c10::make_intrusive<at::QTensorImpl>(std::move(storage), keys, from->dtype(), at::get_qtensorimpl(t)->quantizer());
  }
  if (t.is_conj()) impl->_set_conj(true);
  if (t.is_neg()) impl->_set_neg(true);
  impl->set_sizes_and_strides(t.sizes(), t.strides(), t.storage_offset());
  if (from->is_wrapped_number()) impl->set_wrapped_number(true);
  return Tensor(std::move(impl));
}

// Whether a tensor consists of other tensors: sparse and nested ones.
inline bool compound(const Tensor& t) {
  constexpr auto kinds = c10::DispatchKeySet(c10::DispatchKey::Sparse) | c10::DispatchKeySet(c10::DispatchKey::SparseCsr) |
                         c10::DispatchKeySet(c10::DispatchKey::NestedTensor);
  return t.key_set().has_any(kinds);
}

// The same tensor with other parts: `part` returns each of them, on the other device.
template <class Part>
Tensor rebuilt(const Tensor& t, Device device, Part&& part) {
  if (t.is_nested()) {  // its sizes are on the host on every device
    const auto* nested = at::native::get_nested_tensor_impl(t);
    return at::detail::make_tensor<at::native::NestedTensorImpl>(part(nested->get_unsafe_storage_as_tensor()),
                                                                 nested->get_nested_sizes(), nested->get_nested_strides(),
                                                                 nested->get_storage_offsets());
  }
  if (t.is_sparse()) {
    c10::DeviceGuard guard(device);
    auto made = at::_sparse_coo_tensor_unsafe(part(t._indices()), part(t._values()), t.sizes(),
                                              t.options().device(device));
    made._coalesced_(t.is_coalesced());
    return made;
  }
  const auto* from = at::sparse_csr::get_sparse_csr_impl(t);
  const auto key = device.is_cpu() ? c10::DispatchKey::SparseCsrCPU : c10::DispatchKey::SparseCsrPrivateUse1;
  auto made = at::detail::make_tensor<at::SparseCsrTensorImpl>(c10::DispatchKeySet(key), device, t.layout(), t.dtype());
  at::sparse_csr::get_sparse_csr_impl(made)->set_member_tensors(part(from->compressed_indices()), part(from->plain_indices()),
                                                                part(from->values()), t.sizes());
  return made;
}

inline Tensor host(const Tensor& t) {
  if (!on_card(t)) return t;
  if (compound(t)) return rebuilt(t, at::kCPU, [](const Tensor& part) { return host(part); });
  return retagged(t, host_storage(t.storage()), at::kCPU);
}

// Whether two tensors of the device share a storage.
inline bool together(const Tensor& t, const Tensor& other) {
  return on_card(t) && on_card(other) && !compound(t) && !compound(other) &&
         t.storage().unsafeGetStorageImpl() == other.storage().unsafeGetStorageImpl();
}

// The same for a tensor that may share its storage with one that has an alias: kernels check whether their outputs overlap
// with their inputs, and compare storages.
inline Tensor host_beside(const Tensor& t, const Tensor& other, const Tensor& alias) {
  return together(t, other) ? retagged(t, alias.storage(), at::kCPU) : host(t);
}

// A kernel's new result, converted to a tensor of the device.
inline Tensor taken(const Tensor& t, DeviceIndex device) {
  adopt(t.storage().unsafeGetStorageImpl(), device);
  return retagged(t, t.storage(), Device(kSdaa, device));
}

// Applies to the tensor what a kernel did to its host alias: resizing, other memory, another view.
inline void write_back(const Tensor& t, const Tensor& alias, DeviceIndex device) {
  auto* own = t.storage().unsafeGetStorageImpl();
  auto* theirs = alias.storage().unsafeGetStorageImpl();
  const bool moved = theirs->mutable_data() != own->mutable_data() || theirs->nbytes() != own->nbytes();
  if (moved && (theirs->nbytes() == own->nbytes() || theirs->nbytes() > 0)) {
    const int64_t whole = rounded(int64_t(theirs->nbytes()));
    reserve(device, whole);
    void* data = theirs->mutable_data();
    auto* block = new Block{nullptr, whole, device, {}};
    block->inner = theirs->set_data_ptr(c10::DataPtr(data, Device(at::kCPU)));
    own->set_data_ptr_noswap(c10::DataPtr(data, block, &free_block, Device(kSdaa, device)));
    own->set_nbytes(theirs->nbytes());
  }
  if (alias.sizes() != t.sizes() || alias.strides() != t.strides() || alias.storage_offset() != t.storage_offset())
    t.unsafeGetTensorImpl()->set_sizes_and_strides(alias.sizes(), alias.strides(), alias.storage_offset());
}

}  // namespace sdaa
