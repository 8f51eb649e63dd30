// What is said of an operator that the device has no kernel for.
#pragma once
#include "common.h"

namespace sdaa {

[[noreturn]] inline void refuse(const c10::OperatorHandle& op) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "Could not run '", op.operator_name(),
                              "' with arguments from the 'SDAA' backend: the device has no kernel for it. Run it on the CPU "
                              "(.cpu() before it, .sdaa() after), or give the device one with torch.library");
}

// The dispatcher, asked for an operator that no host kernel stands behind, speaks of the CPU and lists every backend's kernels.
inline void call_or_refuse(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  try {
    op.callBoxed(stack);
  } catch (const c10::NotImplementedError& error) {
    if (error.msg().rfind("Could not run '" + toString(op.operator_name()) + "'", 0) != 0) throw;
    refuse(op);
  }
}

}  // namespace sdaa
