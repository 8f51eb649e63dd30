// Which kernel attention takes: the one the CPU would take, so that its values are the CPU's.
#pragma once
#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>
#include "alias.h"
#include "common.h"

namespace sdaa {

inline int64_t attention_choice(const Tensor& query, const Tensor& key, const Tensor& value, const std::optional<Tensor>& mask,
                                double dropout, bool causal, std::optional<double> scale, bool grouped) {
  const auto there = mask && mask->defined() && on_card(*mask) ? std::optional(host(*mask)) : mask;
  return at::_fused_sdp_choice(host(query), host(key), host(value), there, dropout, causal, scale, grouped);
}

}  // namespace sdaa

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &sdaa::attention_choice)
}
