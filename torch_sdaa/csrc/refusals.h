// What is said of an operator that the device has no kernel for.
#pragma once
#include "common.h"

namespace sdaa {

[[noreturn]] inline void refuse(const c10::OperatorHandle& op) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "Could not run '", op.operator_name(),
                              "' with arguments from the 'SDAA' backend: the device has no kernel for it. Run it on the CPU "
                              "(.cpu() before it, .sdaa() after), or give the device one with torch.library");
}

}  // namespace sdaa
