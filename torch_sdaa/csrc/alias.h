// Two views of the same bytes: a tensor of the device, and one of the host that a CPU kernel can take.
#pragma once
#include "common.h"
#include "memory.h"

namespace sdaa {

inline void drop_reference(void* context) {
  c10::intrusive_ptr<StorageImpl>::reclaim(static_cast<StorageImpl*>(context));
}

// A storage of the host over the same bytes, which keeps the device's alive. Sharing the StorageImpl itself would not do: views
// that CPU kernels make take their device from the storage.
inline Storage host_storage(const Storage& storage) {
  auto* impl = storage.unsafeGetStorageImpl();
  void* data = impl->mutable_data();
  c10::raw::intrusive_ptr::incref(impl);
  return Storage(c10::make_intrusive<StorageImpl>(StorageImpl::use_byte_size_t(), impl->nbytes(),
                                                  c10::DataPtr(data, impl, &drop_reference, Device(at::kCPU)),
                                                  c10::GetCPUAllocator(), true));
}

// A tensor of the same shape and dtype over another storage.
inline Tensor retagged(const Tensor& t, Storage storage, Device device) {
  const c10::DispatchKeySet keys(device.is_cpu() ? c10::DispatchKey::CPU : c10::DispatchKey::PrivateUse1);
  auto* from = t.unsafeGetTensorImpl();
  auto impl = c10::make_intrusive<c10::TensorImpl>(std::move(storage), keys, from->dtype());
  if (t.is_conj()) impl->_set_conj(true);
  if (t.is_neg()) impl->_set_neg(true);
  impl->set_sizes_and_strides(t.sizes(), t.strides(), t.storage_offset());
  if (from->is_wrapped_number()) impl->set_wrapped_number(true);
  return Tensor(std::move(impl));
}

inline Tensor host(const Tensor& t) { return on_card(t) ? retagged(t, host_storage(t.storage()), at::kCPU) : t; }

// A kernel's fresh result, made the device's own.
inline Tensor taken(const Tensor& t, DeviceIndex device) {
  adopt(t.storage().unsafeGetStorageImpl(), device);
  return retagged(t, t.storage(), Device(kSdaa, device));
}

// Does to the tensor what a kernel did to its host alias: resized it, gave it other memory, or set it to another view.
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

inline Tensor sparse_like(const Tensor& t, const Tensor& indices, const Tensor& values, Device device) {
  c10::DeviceGuard guard(device);
  auto made = at::_sparse_coo_tensor_unsafe(indices, values, t.sizes(), values.options().layout(at::kSparse).device(device));
  made._coalesced_(t.is_coalesced());
  return made;
}

}  // namespace sdaa
