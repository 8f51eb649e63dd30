// The operator zoo_cpp::gate in C++: x * silu(g), and its backward, for the CPU and for the device sdaa.
//
// PrivateUse1 is PyTorch's name for a device that comes in a package of its own; torch_sdaa has renamed it "sdaa". The card is
// simulated: its memory lies in this process, so one loop serves both. On a real card `run` would launch a kernel there.
#include <ATen/Dispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <cmath>
#include <tuple>

namespace {

using at::Tensor;

void check(const Tensor& x, const Tensor& g) {
  TORCH_CHECK(x.sizes() == g.sizes(), "x and g must have one shape, not ", x.sizes(), " and ", g.sizes());
  TORCH_CHECK(x.scalar_type() == g.scalar_type(), "x and g must have one dtype, not ", x.scalar_type(), " and ",
              g.scalar_type());
  TORCH_CHECK(x.device() == g.device(), "x and g must be on one device, not ", x.device(), " and ", g.device());
}

Tensor gate(const Tensor& x, const Tensor& g) {
  check(x, g);
  const Tensor a = x.contiguous(), b = g.contiguous();
  Tensor made = at::empty_like(a);
  AT_DISPATCH_FLOATING_TYPES(a.scalar_type(), "gate", [&] {
    const auto *from = a.const_data_ptr<scalar_t>(), *by = b.const_data_ptr<scalar_t>();
    auto* to = made.mutable_data_ptr<scalar_t>();
    for (int64_t i = 0; i < a.numel(); i++) to[i] = from[i] * by[i] / (1 + std::exp(-by[i]));
  });
  return made;
}

std::tuple<Tensor, Tensor> gate_backward(const Tensor& grad, const Tensor& x, const Tensor& g) {
  check(x, g);
  const Tensor d = grad.contiguous(), a = x.contiguous(), b = g.contiguous();
  Tensor of_x = at::empty_like(a), of_g = at::empty_like(b);
  AT_DISPATCH_FLOATING_TYPES(a.scalar_type(), "gate_backward", [&] {
    const auto *down = d.const_data_ptr<scalar_t>(), *from = a.const_data_ptr<scalar_t>(), *by = b.const_data_ptr<scalar_t>();
    auto *to_x = of_x.mutable_data_ptr<scalar_t>(), *to_g = of_g.mutable_data_ptr<scalar_t>();
    for (int64_t i = 0; i < a.numel(); i++) {
      const scalar_t s = 1 / (1 + std::exp(-by[i]));
      to_x[i] = down[i] * by[i] * s;
      to_g[i] = down[i] * from[i] * (s + by[i] * s * (1 - s));
    }
  });
  return {of_x, of_g};
}

}  // namespace

TORCH_LIBRARY(zoo_cpp, m) {
  m.def("gate(Tensor x, Tensor g) -> Tensor");
  m.def("gate_backward(Tensor grad, Tensor x, Tensor g) -> (Tensor, Tensor)");
}
TORCH_LIBRARY_IMPL(zoo_cpp, CPU, m) {
  m.impl("gate", gate);
  m.impl("gate_backward", gate_backward);
}
TORCH_LIBRARY_IMPL(zoo_cpp, PrivateUse1, m) {
  m.impl("gate", gate);
  m.impl("gate_backward", gate_backward);
}
