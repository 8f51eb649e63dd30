// The error for an operator without a kernel for the device.
#pragma once
#include "common.h"

namespace sdaa {

[[noreturn]] inline void refuse(const c10::OperatorHandle& op) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "Could not run '", op.operator_name(),
                              "' with arguments from the 'SDAA' backend: the device has no kernel for it. Run it on the CPU "
                              "(.cpu() before it, .sdaa() after), or register a kernel with torch.library");
}

inline void refuse_pinning(std::optional<bool> pin) {
  TORCH_CHECK(!pin.value_or(false), "Only dense CPU tensors can be pinned: create it on the CPU (device='cpu', pin_memory=True), "
                                    "then move it with .to('sdaa', non_blocking=True)");
}

// Tensors of an operator with its own kernel must be the device's, like those of the boxed kernel.
inline void expect_on(const char* op, Device device, std::initializer_list<const at::Tensor*> tensors) {
  for (const auto* t : tensors)
    TORCH_CHECK(!t->defined() || t->device() == device, "Expected all tensors to be on the same device, but found at least two "
                "devices, ", device, " and ", t->device(), "! (", op, "; move one with .to())");
}

}  // namespace sdaa
