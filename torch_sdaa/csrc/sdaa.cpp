// The simulated card as a PyTorch device: one PrivateUse1 backend, compiled as one translation unit.
#include "boxed.h"
#include "common.h"
#include "device.h"
#include "generator.h"
#include "kernels.h"
#include "log.h"
#include "memory.h"
#include "norm.h"
#include "profiler.h"
#include "redirect.h"
#include "strict.h"
#include "threads.h"

namespace sdaa {
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)
}

#define SDAA_FALLBACK(KEY, HOST)                                                                                   \
  TORCH_LIBRARY_IMPL(_, KEY, m) {                                                                                  \
    m.fallback(torch::CppFunction::makeFromBoxedFunction<&sdaa::boxed_fallback<c10::DispatchKey::HOST>>());        \
  }
SDAA_FALLBACK(PrivateUse1, CPU)
SDAA_FALLBACK(SparsePrivateUse1, SparseCPU)
SDAA_FALLBACK(SparseCsrPrivateUse1, SparseCsrCPU)
SDAA_FALLBACK(QuantizedPrivateUse1, QuantizedCPU)
SDAA_FALLBACK(NestedTensorPrivateUse1, NestedTensorCPU)
TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &sdaa::fused_sdp_choice)
}

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
  sdaa::bind_faults(m);
  sdaa::bind_strict(m);
  sdaa::bind_redirect(m);
  sdaa::register_profiler();
  sdaa::bind_device(m);
  sdaa::bind_boxed(m);
  m.attr("registered") = sdaa::registered;
}
