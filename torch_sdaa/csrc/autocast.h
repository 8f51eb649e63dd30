// Autocast: CUDA's lists of operators, except those of CUDA's libraries (cuDNN).
#pragma once
#include "common.h"

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

namespace at::autocast {
namespace {
// Its backward divides by the prediction, and float16 cannot hold that gradient; CUDA's autocast refuses it too.
inline Tensor refuse_binary_cross_entropy(const Tensor&, const Tensor&, const std::optional<Tensor>&, int64_t) {
  TORCH_CHECK(false,
              "binary_cross_entropy (torch.nn.BCELoss) is not safe under autocast: use binary_cross_entropy_with_logits "
              "(torch.nn.BCEWithLogitsLoss) on the input of the sigmoid, or compute the loss under "
              "torch.autocast('sdaa', enabled=False) with float32 inputs");
}

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
#define SDAA_LOWER(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define SDAA_FLOAT32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define SDAA_SET_DTYPE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define SDAA_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
  AT_FORALL_LOWER_PRECISION_FP(SDAA_LOWER)
  AT_FORALL_FP32(SDAA_FLOAT32)
  AT_FORALL_FP32_SET_OPT_DTYPE(SDAA_SET_DTYPE)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
  AT_FORALL_PROMOTE(SDAA_PROMOTE)
  m.impl("binary_cross_entropy", TORCH_FN(refuse_binary_cross_entropy));
}
}  // namespace
}  // namespace at::autocast
