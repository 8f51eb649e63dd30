// The kernels of nn.SyncBatchNorm, which PyTorch has only for CUDA: statistics of one process's part of a batch, their union
// over processes, and the sums of gradients.
//
// An input is batch x channels x ...; statistics are one value per channel, in float32 if the input has 16 bits.
#pragma once
#include "alias.h"
#include "common.h"
#include "device.h"
#include "log.h"
#include "threads.h"

namespace sdaa {

using MaybeTensor = std::optional<Tensor>;
using Pair = std::tuple<Tensor, Tensor>;
using Quad = std::tuple<Tensor, Tensor, Tensor, Tensor>;

inline bool given(const MaybeTensor& t) { return t && t->defined(); }

// Computes on the host's aliases, converts the results to the device's, and logs one launch.
template <size_t N, class Compute>
std::array<Tensor, N> on_host(const char* name, std::initializer_list<const Tensor*> inputs, Compute&& compute) {
  Within span(Doing::runtime, "kernel");
  take_owners_state();
  const auto device = (*inputs.begin())->device().index();
  at::NoGradGuard no_grad;
  std::array<Tensor, N> made = compute();
  for (auto& t : made)
    if (t.defined()) t = taken(t, device);
  auto hash = mixed(0, reinterpret_cast<uintptr_t>(name));
  for (const auto* t : inputs) hash = mixed(hash, *t);
  launched(What::kernel, hash, device, int32_t(streams[device]), [&] {
    Signature signature{name, {}, {}, -1};
    for (const auto* t : inputs) add_meta(signature.inputs, *t);
    for (const auto& t : made) add_meta(signature.outputs, t);
    return signature;
  });
  return made;
}

// Sums are at least float32.
inline Tensor wide(const Tensor& t) {
  auto alias = host(t);
  return at::isReducedFloatingType(alias.scalar_type()) ? alias.to(at::kFloat) : alias;
}
inline std::vector<int64_t> all_but_channels(const Tensor& t) {
  std::vector<int64_t> dims{0};
  for (int64_t k = 2; k < t.dim(); k++) dims.push_back(k);
  return dims;
}
// One value per channel, broadcast over an input.
inline Tensor a_channel(const Tensor& values, const Tensor& like) {
  std::vector<int64_t> sizes(like.dim(), 1);
  sizes[1] = -1;
  return wide(values).view(sizes);
}

inline Pair batch_norm_stats(const Tensor& input, double eps) {
  auto [mean, invstd] = on_host<2>("aten::batch_norm_stats", {&input}, [&]() -> std::array<Tensor, 2> {
    auto [variance, average] = at::var_mean(wide(input), all_but_channels(input), 0.0);
    return {average, (variance + eps).rsqrt()};
  });
  return {mean, invstd};
}

// mean and invstd: processes x channels; counts: number of values of each process.
inline Pair batch_norm_gather(const Tensor& input, const Tensor& mean, const Tensor& invstd, const MaybeTensor& running_mean,
                              const MaybeTensor& running_var, double momentum, double eps, const Tensor& counts) {
  auto [all_mean, all_invstd] =
      on_host<2>("aten::batch_norm_gather_stats_with_counts", {&mean, &invstd, &counts}, [&]() -> std::array<Tensor, 2> {
        const auto averages = wide(mean), deviations = wide(invstd), each = wide(counts);
        auto average = at::zeros_like(averages[0]), squares = at::zeros_like(average);
        double n = 0;
        for (int64_t k = 0; k < averages.size(0); k++) {  // Chan's union of two sets' means and sums of squares
          const double more = each[k].item<double>();
          const auto apart = averages[k] - average;
          squares += (deviations[k].pow(-2) - eps) * more + apart * apart * (n * more / (n + more));
          average += apart * (more / (n + more));
          n += more;
        }
        auto update = [&](const MaybeTensor& running, const Tensor& now) {
          if (!given(running)) return;
          auto alias = host(*running);
          alias.mul_(1 - momentum).add_(now.to(alias.scalar_type()), momentum);
        };
        update(running_mean, average);
        update(running_var, squares / std::max(n - 1, 1.0));
        return {average, (squares / n + eps).rsqrt()};
      });
  return {all_mean, all_invstd};
}

inline Pair batch_norm_gather_equal(const Tensor& input, const Tensor& mean, const Tensor& invstd,
                                    const MaybeTensor& running_mean, const MaybeTensor& running_var, double momentum,
                                    double eps, int64_t count) {
  const auto counts = at::full({mean.size(0)}, double(count), mean.options());
  return batch_norm_gather(input, mean, invstd, running_mean, running_var, momentum, eps, counts);
}

inline Tensor batch_norm_elemt(const Tensor& input, const MaybeTensor& weight, const MaybeTensor& bias, const Tensor& mean,
                               const Tensor& invstd, double) {
  return on_host<1>("aten::batch_norm_elemt", {&input, &mean, &invstd}, [&]() -> std::array<Tensor, 1> {
    auto y = (wide(input) - a_channel(mean, input)) * a_channel(invstd, input);
    if (given(weight)) y.mul_(a_channel(*weight, input));
    if (given(bias)) y.add_(a_channel(*bias, input));
    return {y.to(input.scalar_type())};
  })[0];
}

// Returns the sums over all but channels of the gradient and of the gradient times the distance from the mean, and the
// gradients of weight and bias.
inline Quad batch_norm_backward_reduce(const Tensor& grad, const Tensor& input, const Tensor& mean, const Tensor& invstd,
                                       const MaybeTensor& weight, bool input_g, bool weight_g, bool bias_g) {
  auto [sum, sum_apart, of_weight, of_bias] =
      on_host<4>("aten::batch_norm_backward_reduce", {&grad, &input, &mean, &invstd}, [&]() -> std::array<Tensor, 4> {
        const auto dims = all_but_channels(input);
        const auto dy = wide(grad);
        auto sum = dy.sum(dims), apart = (dy * (wide(input) - a_channel(mean, input))).sum(dims);
        const auto dtype = given(weight) ? weight->scalar_type() : input.scalar_type();
        auto of_weight = weight_g ? (apart * wide(invstd)).to(dtype) : Tensor();
        auto of_bias = bias_g ? sum.to(dtype, /*non_blocking=*/false, /*copy=*/true) : Tensor();
        return {input_g ? sum : Tensor(), input_g ? apart : Tensor(), of_weight, of_bias};
      });
  return {sum, sum_apart, of_weight, of_bias};
}

// sum and sum_apart: over all processes; count: number of values of a channel in each of them.
inline Tensor batch_norm_backward_elemt(const Tensor& grad, const Tensor& input, const Tensor& mean, const Tensor& invstd,
                                        const MaybeTensor& weight, const Tensor& sum, const Tensor& sum_apart,
                                        const Tensor& count) {
  return on_host<1>("aten::batch_norm_backward_elemt", {&grad, &input, &mean, &invstd}, [&]() -> std::array<Tensor, 1> {
    const double all = host(count).sum().item<double>();
    const auto scale = a_channel(invstd, input);
    const auto apart = wide(input) - a_channel(mean, input);
    auto dx = wide(grad) - a_channel(sum, input) / all - apart * (a_channel(sum_apart, input) / all * scale * scale);
    dx = dx * scale;
    if (given(weight)) dx = dx * a_channel(*weight, input);
    return {dx.to(input.scalar_type())};
  })[0];
}

inline void register_norms(torch::Library& m) {
  m.impl("batch_norm_stats", batch_norm_stats);
  m.impl("batch_norm_gather_stats_with_counts", batch_norm_gather);
  m.impl("batch_norm_gather_stats", batch_norm_gather_equal);
  m.impl("batch_norm_elemt", batch_norm_elemt);
  m.impl("batch_norm_backward_reduce", batch_norm_backward_reduce);
  m.impl("batch_norm_backward_elemt", batch_norm_backward_elemt);
}

}  // namespace sdaa
