// The simulated card as a PyTorch device: one PrivateUse1 backend, compiled as one translation unit.
#include "boxed.h"
#include "common.h"
#include "device.h"
#include "generator.h"
#include "kernels.h"
#include "log.h"
#include "memory.h"
#include "threads.h"

namespace sdaa {
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&sdaa::boxed_kernel>());
}
TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

namespace at::autocast {
namespace {
TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {  // CUDA's lists
#define SDAA_LOWER(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define SDAA_FLOAT32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define SDAA_SET_DTYPE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define SDAA_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
  AT_FORALL_LOWER_PRECISION_FP(SDAA_LOWER)
  AT_FORALL_FP32(SDAA_FLOAT32)
  AT_FORALL_FP32_SET_OPT_DTYPE(SDAA_SET_DTYPE)
  AT_FORALL_PROMOTE(SDAA_PROMOTE)
}
}  // namespace
}  // namespace at::autocast

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  at::RegisterPrivateUse1HooksInterface(&sdaa::hooks());
  c10::SetAllocator(sdaa::kSdaa, &sdaa::allocator());
  at::setHostAllocator(sdaa::kSdaa, &sdaa::pinned_allocator(), 1);
  sdaa::register_all();
  sdaa::keep_freed_memory();
  sdaa::claim_owner();
  sdaa::bind_memory(m);
  sdaa::bind_generator(m);
  sdaa::bind_threads(m);
  sdaa::bind_log(m);
  sdaa::bind_device(m);
  sdaa::bind_boxed(m);
  m.attr("registered") = sdaa::registered;
}
