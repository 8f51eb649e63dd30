// Included by every part of the extension. The parts are headers of one translation unit (sdaa.cpp): torch's own headers
// cost ten CPU seconds per translation unit.
#pragma once
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/Functions.h>
#include <ATen/NativeFunctions.h>
#include <ATen/Parallel.h>
#include <ATen/EmptyTensor.h>
#include <ATen/NestedTensorImpl.h>
#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseCsrTensorUtils.h>
#include <ATen/SparseTensorImpl.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/native/Resize.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/quantized/QTensorImpl.h>
#include <c10/core/AutogradState.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/alloc_cpu.h>
#include <malloc.h>
#include <pthread.h>
#include <torch/csrc/Generator.h>
#include <torch/csrc/autograd/forward_grad.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/library.h>
#ifdef __SSE2__
#include <immintrin.h>
#endif
#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <typeinfo>
#include <unordered_map>
#include <utility>
#include <vector>

namespace sdaa {

using at::Tensor;
using c10::Device;
using c10::DeviceIndex;
using c10::IntArrayRef;
using c10::Storage;
using c10::StorageImpl;
namespace py = pybind11;

constexpr auto kSdaa = c10::DeviceType::PrivateUse1;
constexpr int kMaxDevices = 64;
constexpr double kMiB = 1024.0 * 1024.0;

inline int n_devices = 4;                     // set once, by Python, from the card's description and SDAA_VISIBLE_DEVICES
inline thread_local DeviceIndex current = 0;  // the thread's device

inline bool on_card(const Tensor& t) { return t.device().type() == kSdaa; }
inline DeviceIndex resolved(DeviceIndex i) { return i < 0 ? current : i; }

// The same for a number from outside: raises an error if there is no such device.
inline DeviceIndex seen(int64_t i) {
  TORCH_CHECK(i >= -1 && i < n_devices, "Invalid SDAA device index ", i, ": this process sees ",
              n_devices == 0 ? std::string("no device") : n_devices == 1 ? std::string("1 device (sdaa:0)")
              : std::to_string(n_devices) + " devices (sdaa:0 to sdaa:" + std::to_string(n_devices - 1) + ")",
              "; see SDAA_VISIBLE_DEVICES");
  return resolved(DeviceIndex(i));
}

}  // namespace sdaa
