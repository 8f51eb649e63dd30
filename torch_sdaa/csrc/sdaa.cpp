// The simulated card as a PyTorch device: one PrivateUse1 backend, compiled as one translation unit.
#include "autocast.h"
#include "boxed.h"
#include "collectives.h"
#include "common.h"
#include "device.h"
#include "generator.h"
#include "host_spans.h"
#include "kernels.h"
#include "lists.h"
#include "log.h"
#include "memory.h"
#include "norm.h"
#include "op_faults.h"
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

#ifdef SDAA_COLLECTIVES
TORCH_LIBRARY_IMPL(c10d, SparsePrivateUse1, m) {
  m.impl("allreduce_", torch::CppFunction::makeFromBoxedFunction<&sdaa::refuse_sparse>());
}
#endif

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &sdaa::fused_sdp_choice)
}

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
  sdaa::bind_host_spans(m);
  sdaa::bind_faults(m);
  sdaa::bind_op_faults(m);
  sdaa::bind_strict(m);
  sdaa::bind_redirect(m);
  sdaa::register_profiler();
  sdaa::bind_profiler(m);
  sdaa::bind_device(m);
  sdaa::bind_boxed(m);
  sdaa::bind_collectives(m);
  m.attr("registered") = sdaa::registered;
}
