// Backend "tccl" of torch.distributed: collectives on the device's bytes, transported by gloo, timed by the simulated clock.
//
// Each process has its own clock: the cost of a collective is counted from its start on this rank, without waiting for ranks
// that start later.
#pragma once
#include "alias.h"
#include "common.h"
#include "device.h"
#include "jobs.h"
#include "log.h"
#include "ranks.h"
#include <numeric>

namespace sdaa {

#ifdef SDAA_COLLECTIVES
inline Tensors flat(const std::vector<Tensors>& lists) {
  Tensors all;
  for (const auto& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}
inline Tensors hosts_of(const Tensors& tensors) {
  Tensors all;
  for (const auto& t : tensors) all.push_back(host(t));
  return all;
}
inline std::vector<Tensors> hosts_of(const std::vector<Tensors>& lists) {
  std::vector<Tensors> all;
  for (const auto& list : lists) all.push_back(hosts_of(list));
  return all;
}

// Gloo splits the gathered tensor along its first dimension; only the number of elements matters, as with NCCL.
inline Tensors flat_hosts_of(const char* name, const Tensors& tensors) {
  Tensors all;
  for (const auto& t : tensors) {
    TORCH_CHECK_VALUE(t.is_contiguous(), "tccl: ", name, " of a tensor that is not contiguous: use .contiguous()");
    all.push_back(host(t).view({-1}));
  }
  return all;
}

inline std::vector<int64_t> numels(const Tensors& tensors) {
  std::vector<int64_t> all;
  for (const auto& t : tensors) all.push_back(t.numel());
  return all;
}
inline bool uneven(const std::vector<Tensors>& lists) {
  if (lists.size() != 1) return false;
  const auto& all = lists.front();
  return std::any_of(all.begin(), all.end(), [&](const Tensor& t) { return t.numel() != all.front().numel(); });
}
inline void copy_all(const Tensors& to, const Tensors& from) {
  for (size_t i = 0; i < to.size(); i++) to[i].copy_(from[i].view(to[i].sizes()));
}

// Reductions that gloo lacks: averages are sums, divided afterwards; a factor is multiplied in before.
struct Reduction {
  c10d::ReduceOp op;
  bool average = false;
  std::optional<Tensor> factor;

  Reduction(const char* name, const c10d::ReduceOp& wanted, const Tensors& tensors) : op(wanted) {
    const bool bitwise = wanted == c10d::ReduceOp::BAND || wanted == c10d::ReduceOp::BOR || wanted == c10d::ReduceOp::BXOR;
    for (const auto& t : tensors)
      TORCH_CHECK_VALUE(!bitwise || at::isIntegralType(t.scalar_type(), /*includeBool=*/true), "tccl: ", name,
                        " with ReduceOp.BAND, BOR or BXOR takes integers, not ", t.dtype(), ": use .to(torch.int32), or SUM");
    average = wanted == c10d::ReduceOp::AVG;
    if (wanted == c10d::ReduceOp::PREMUL_SUM) {
      const auto* given = static_cast<const c10d::PreMulSumSupplement*>(wanted.supplement_.get());
      factor = given->tensor_factor.defined() ? host(given->tensor_factor) : at::scalar_tensor(given->double_factor, at::kDouble);
    }
    if (average || factor) op = c10d::ReduceOp(c10d::ReduceOp::SUM);
  }
  // The tensors to pass: new ones if a factor is multiplied in.
  Tensors before(const Tensors& tensors) const {
    if (!factor) return tensors;
    Tensors made;
    for (const auto& t : tensors) made.push_back(at::mul(t, factor->to(t.scalar_type())));
    return made;
  }
  After after(Tensors results, int size) const {
    if (!average) return {};
    return [results = std::move(results), size] {
      for (auto& t : results) {
        if (at::isIntegralType(t.scalar_type(), /*includeBool=*/true)) t.div_(size, "trunc");
        else t.div_(size);
      }
    };
  }
};

class Tccl final : public c10d::Backend {
 public:
  Tccl(c10::intrusive_ptr<c10d::Backend> gloo, std::shared_ptr<Ranks> ranks)
      : Backend(ranks->rank, int(ranks->members.size())), gloo_(std::move(gloo)), ranks_(std::move(ranks)) {}
  ~Tccl() override {  // gloo's destructor waits for its threads, which may wait for a rank that has ended
    if (ranks_->failed) {
      static_cast<void>(gloo_.release());
      return;
    }
    // Those threads may need the interpreter lock to release a tensor, and DDP's reducer is destroyed under it.
    if (Py_IsInitialized() && PyGILState_Check()) {
      py::gil_scoped_release unlocked;
      gloo_.reset();
    }
  }

  const std::string getBackendName() const override { return "tccl"; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return gloo_->getBackendOptions(); }
  void setTimeout(std::chrono::milliseconds timeout) override { gloo_->setTimeout(timeout); }
  void setSequenceNumberForGroup() override { gloo_->setSequenceNumberForGroup(); }
  uint64_t getSequenceNumberForGroup() override { return gloo_->getSequenceNumberForGroup(); }
  c10d::ErrorType getError() override { return ranks_->failed ? c10d::ErrorType::COMM_ERROR : c10d::ErrorType::SUCCESS; }
  void shutdown() override { gloo_->shutdown(); }
  void abort() override { gloo_->abort(); }

  bool supportsSplitting() const override { return true; }
  c10::intrusive_ptr<Backend> split(const c10::intrusive_ptr<c10d::Store>&, const std::vector<int>& chosen,
                                    const c10::intrusive_ptr<Options>& options) override {
    // In this group's store: the store of the call is named by the number of groups that this process has created, which may
    // differ from rank to rank.
    std::string name = "tccl/split";
    for (const int r : chosen) name += "/" + std::to_string(r);
    const auto own = c10::make_intrusive<c10d::PrefixStore>(name + "/" + std::to_string(splits_[name]++), ranks_->store);
    auto part = gloo_->split(own, chosen, options);
    if (!part) return nullptr;
    auto ranks = std::make_shared<Ranks>(part->getRank(), own, ranks_->devices);
    ranks->store_outlives = ranks_->store_outlives;
    for (const int r : chosen) ranks->members.push_back(ranks_->members.at(size_t(r)));
    return c10::make_intrusive<Tccl>(std::move(part), std::move(ranks));
  }

  void startCoalescing() override { coalesced_.emplace(); }
  WorkPtr endCoalescing() override {
    TORCH_CHECK(coalesced_, "tccl: _end_coalescing without _start_coalescing");
    auto works = std::move(*coalesced_);
    coalesced_.reset();
    return c10::make_intrusive<Jobs>(std::move(works));
  }

  c10::intrusive_ptr<c10d::Store> store() const { return ranks_->store; }

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) override {
    return run(OpType::BROADCAST, "broadcast", tensors, tensors, [&] {
      auto hosts = hosts_of(tensors);
      return gloo_->broadcast(hosts, opts);
    });
  }

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override {
    return reduced_in_place(OpType::ALLREDUCE, "all_reduce", tensors, opts,
                            [&](Tensors& hosts, const auto& o) { return gloo_->allreduce(hosts, o); });
  }
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) override {
    return reduced_in_place(OpType::ALLREDUCE_COALESCED, "all_reduce", tensors, opts,
                            [&](Tensors& hosts, const auto& o) { return gloo_->allreduce_coalesced(hosts, o); });
  }
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override {
    return reduced_in_place(OpType::REDUCE, "reduce", tensors, opts,
                            [&](Tensors& hosts, const auto& o) { return gloo_->reduce(hosts, o); }, opts.rootRank == rank_);
  }

  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override {
    const auto made = flat(outputs);
    if (uneven(outputs) && inputs.size() == 1) {  // each rank sends its own to all
      check_list("all_gather", "outputs", made, made, inputs[0]);
      auto came = std::make_shared<Tensors>();
      auto out = hosts_of(made);
      return run(OpType::ALLGATHER, "all_gather", inputs, made,
                 [&] { return exchange(Tensors(size_t(size_), host(inputs[0])), numels(made), *came, opts.timeout); },
                 [came, out] { copy_all(out, *came); });
    }
    return run(OpType::ALLGATHER, "all_gather", inputs, made, [&] {
      auto out = hosts_of(outputs);
      auto in = hosts_of(inputs);
      return gloo_->allgather(out, in, opts);
    });
  }
  WorkPtr _allgather_base(Tensor& output, Tensor& input, const c10d::AllgatherOptions& opts) override {
    return run(OpType::_ALLGATHER_BASE, "all_gather", {input}, {output}, [&] {
      auto both = flat_hosts_of("all_gather", {output, input});
      return gloo_->_allgather_base(both[0], both[1], opts);
    });
  }
  WorkPtr allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override {
    return run(OpType::ALLGATHER_COALESCED, "all_gather", inputs, flat(outputs), [&] {
      auto out = hosts_of(outputs);
      auto in = hosts_of(inputs);
      return gloo_->allgather_coalesced(out, in, opts);
    });
  }
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override {
    return run(OpType::ALLGATHER_COALESCED, "all_gather", inputs, outputs, [&] {
      auto out = flat_hosts_of("all_gather", outputs), in = flat_hosts_of("all_gather", inputs);
      return gloo_->allgather_into_tensor_coalesced(out, in, opts);
    });
  }

  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& opts) override {
    return run(OpType::GATHER, "gather", inputs, flat(outputs), [&] {
      auto out = hosts_of(outputs);
      auto in = hosts_of(inputs);
      return gloo_->gather(out, in, opts);
    });
  }
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& opts) override {
    return run(OpType::SCATTER, "scatter", flat(inputs), outputs, [&] {
      auto out = hosts_of(outputs);
      auto in = hosts_of(inputs);
      return gloo_->scatter(out, in, opts);
    });
  }

  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ReduceScatterOptions& opts) override {
    const Reduction how("reduce_scatter", opts.reduceOp, outputs);
    auto o = with_op(opts, how);
    auto out = hosts_of(outputs);
    if (uneven(inputs) && outputs.size() == 1) {  // each rank receives its part from all, and reduces it itself
      check_list("reduce_scatter", "inputs", inputs[0], inputs[0], outputs[0]);
      auto came = std::make_shared<Tensors>();
      const std::vector<int64_t> sizes(size_t(size_), out[0].numel());
      return run(OpType::REDUCE_SCATTER, "reduce_scatter", inputs[0], outputs,
                 [&] { return exchange(how.before(hosts_of(inputs[0])), sizes, *came, opts.timeout); },
                 [came, out, op = how.op, divide = how.after(out, size_)] {
                   for (size_t i = 1; i < came->size(); i++) reduce_into((*came)[0], (*came)[i], op);
                   copy_all(out, *came);
                   if (divide) divide();
                 });
    }
    return run(OpType::REDUCE_SCATTER, "reduce_scatter", flat(inputs), outputs, [&] {
      std::vector<Tensors> in;
      for (const auto& list : inputs) in.push_back(how.before(hosts_of(list)));
      return gloo_->reduce_scatter(out, in, o);
    }, how.after(out, size_));
  }
  WorkPtr _reduce_scatter_base(Tensor& output, Tensor& input, const c10d::ReduceScatterOptions& opts) override {
    Tensors outputs{output}, inputs{input};
    return reduce_scatter_tensor_coalesced(outputs, inputs, opts);
  }
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& opts) override {
    const Reduction how("reduce_scatter", opts.reduceOp, outputs);
    auto o = with_op(opts, how);
    auto out = flat_hosts_of("reduce_scatter", outputs);
    return run(OpType::_REDUCE_SCATTER_BASE, "reduce_scatter", inputs, outputs, [&] {
      auto in = how.before(flat_hosts_of("reduce_scatter", inputs));
      return gloo_->reduce_scatter_tensor_coalesced(out, in, o);
    }, how.after(out, size_));
  }

  WorkPtr alltoall_base(Tensor& output, Tensor& input, std::vector<int64_t>& output_sizes, std::vector<int64_t>& input_sizes,
                        const c10d::AllToAllOptions& opts) override {
    return run(OpType::ALLTOALL_BASE, "all_to_all", {input}, {output}, [&] {
      auto out = host(output), in = host(input);
      return gloo_->alltoall_base(out, in, output_sizes, input_sizes, opts);
    });
  }
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) override {
    for (const auto* list : {&outputs, &inputs})
      check_list("all_to_all", list == &outputs ? "outputs" : "inputs", *list, outputs, {});
    auto came = std::make_shared<Tensors>();
    auto out = hosts_of(outputs);
    return run(OpType::ALLTOALL, "all_to_all", inputs, outputs,
               [&] { return exchange(hosts_of(inputs), numels(outputs), *came, opts.timeout); },
               [came, out] { copy_all(out, *came); });
  }

  WorkPtr send(Tensors& tensors, int to, int tag) override {
    return run(OpType::SEND, "send", tensors, {}, [&] {
      auto hosts = hosts_of(tensors);
      return gloo_->send(hosts, to, tag);
    });
  }
  WorkPtr recv(Tensors& tensors, int from, int tag) override {
    return run(OpType::RECV, "recv", {}, tensors, [&] {
      auto hosts = hosts_of(tensors);
      return gloo_->recv(hosts, from, tag);
    });
  }
  WorkPtr recvAnysource(Tensors& tensors, int tag) override {
    return run(OpType::RECVANYSOURCE, "recv", {}, tensors, [&] {
      auto hosts = hosts_of(tensors);
      return gloo_->recvAnysource(hosts, tag);
    });
  }

  WorkPtr barrier(const c10d::BarrierOptions& opts) override {
    auto device = current;
    if (!opts.device_ids.empty()) device = seen(opts.device_ids.front());
    else if (opts.device && opts.device->type() == kSdaa && opts.device->has_index()) device = seen(opts.device->index());
    c10d::BarrierOptions plain;
    plain.timeout = opts.timeout;
    return run_on(device, OpType::BARRIER, "barrier", {}, {}, [&] { return gloo_->barrier(plain); }, {});
  }

 private:
  template <class Options>
  static Options with_op(const Options& opts, const Reduction& how) {
    Options changed = opts;
    changed.reduceOp = how.op;
    return changed;
  }

  template <class Options, class Call>
  WorkPtr reduced_in_place(OpType type, const char* name, Tensors& tensors, const Options& opts, Call&& call, bool mine = true) {
    const Reduction how(name, opts.reduceOp, tensors);
    auto o = with_op(opts, how);
    for (const auto& t : tensors) refuse_compound(name, t);
    auto own = hosts_of(tensors), hosts = how.before(own);
    auto after = how.after(own, size_);
    if (how.factor)
      after = [own, hosts] {
        for (size_t i = 0; i < own.size(); i++) own[i].copy_(hosts[i]);
      };
    if (!mine) after = {};
    return run(type, name, tensors, tensors, [&] { return call(hosts, o); }, std::move(after));
  }

  // One tensor per rank, all of one dtype; mine has as many elements as that of this rank, if given.
  void check_list(const char* name, const char* which, const Tensors& list, const Tensors& alike, const Tensor& mine) const {
    TORCH_CHECK_VALUE(int(list.size()) == size_, "tccl: ", name, " has ", list.size(), " ", which, " for ", size_,
                      " ranks: pass one for each");
    for (const auto& t : list)
      TORCH_CHECK_VALUE(t.dtype() == (mine.defined() ? mine : alike.at(0)).dtype(), "tccl: ", name, " of ", t.dtype(), " and ",
                        (mine.defined() ? mine : alike.at(0)).dtype(), ": all tensors must have one dtype");
    const auto& own = list[size_t(rank_)];
    TORCH_CHECK_VALUE(!mine.defined() || own.numel() == mine.numel(), "tccl: ", name, ": tensor ", rank_, " of the ", which, " has ",
                      own.numel(), " elements, and this rank's tensor ", mine.numel(), ": the numbers must be equal");
  }

  // Tensors of any sizes to and from all ranks, in one exchange of flat ones: gloo's lists require equal tensors.
  WorkPtr exchange(const Tensors& sent, std::vector<int64_t> sizes, Tensors& came, std::chrono::milliseconds timeout) {
    Tensors parts;
    for (const auto& t : sent) parts.push_back(t.reshape({-1}));
    auto in = at::cat(parts);
    auto in_sizes = numels(sent);
    auto out = at::empty({std::accumulate(sizes.begin(), sizes.end(), int64_t(0))}, in.options());
    came = out.split_with_sizes(sizes);
    c10d::AllToAllOptions opts;
    opts.timeout = timeout;
    return gloo_->alltoall_base(out, in, sizes, in_sizes, opts);
  }

  static void reduce_into(Tensor& all, const Tensor& one, const c10d::ReduceOp& op) {
    switch (c10d::ReduceOp::RedOpType(op)) {
      case c10d::ReduceOp::PRODUCT: all.mul_(one); break;
      case c10d::ReduceOp::MIN: at::minimum_out(all, all, one); break;
      case c10d::ReduceOp::MAX: at::maximum_out(all, all, one); break;
      case c10d::ReduceOp::BAND: all.bitwise_and_(one); break;
      case c10d::ReduceOp::BOR: all.bitwise_or_(one); break;
      case c10d::ReduceOp::BXOR: all.bitwise_xor_(one); break;
      default: all.add_(one);
    }
  }

  static void refuse_compound(const char* name, const Tensor& t) {
    TORCH_CHECK(!compound(t), "tccl: ", name, " takes dense tensors, not ", t.layout(), ": use .to_dense()");
  }

  template <class Call>
  WorkPtr run(OpType type, const char* name, const Tensors& inputs, const Tensors& outputs, Call&& call, After after = {}) {
    std::optional<Device> device;
    for (const auto* all : {&inputs, &outputs})
      for (const auto& t : *all) {
        refuse_compound(name, t);
        TORCH_CHECK(on_card(t) && t.device() == device.value_or(t.device()), "tccl: ", name, " of tensors on ",
                    device.value_or(Device(kSdaa, current)), " and ", t.device(), ": all tensors of a rank's collective must be on its "
                    "device; move them with .to(", device.value_or(Device(kSdaa, current)), ")");
        device = t.device();
      }
    return run_on(device ? device->index() : current, type, name, inputs, outputs, std::forward<Call>(call), std::move(after));
  }

  template <class Call>
  WorkPtr run_on(DeviceIndex device, OpType type, const char* name, const Tensors& inputs, const Tensors& outputs, Call&& call,
                 After after) {
    ranks_->claim(device);
    auto job = c10::make_intrusive<Job>(ranks_, type, name, outputs);
    job->start(device, launch(device, name, inputs, outputs), type == OpType::BARRIER);
    WorkPtr inner;
    try {
      inner = call();
    } catch (const c10::Error& error) {
      if (!Ranks::is_loss(error.what_without_backtrace())) throw;
      std::rethrow_exception(ranks_->explained(name, std::current_exception()));
    }
    job->follow(std::move(inner), std::move(after));
    if (coalesced_) coalesced_->push_back(job);
    return job;
  }

  // Adds the collective to the clock: after the work of this rank's stream, on a stream of the group.
  uint32_t launch(DeviceIndex device, const char* name, const Tensors& inputs, const Tensors& outputs) const {
    const uint32_t event = next_event++;
    note(What::record, device, int32_t(streams[device]), event);
    note(What::wait, device, kRing, event);
    auto hash = mixed(mixed(0, reinterpret_cast<uintptr_t>(name)), uint64_t(size_));
    for (const auto* all : {&inputs, &outputs}) {
      hash = mixed(hash, all->size());
      for (const auto& t : *all) hash = mixed(hash, t);
    }
    launched(What::copy_in, hash, device, kRing, [&] {
      Signature made{"tccl::" + std::string(name) + "[" + std::to_string(size_) + "]"};
      for (const auto& t : inputs) add_meta(made.inputs, t);
      for (const auto& t : outputs) add_meta(made.outputs, t);
      return made;
    });
    note(What::record, device, kRing, event);
    return event;
  }

  c10::intrusive_ptr<c10d::Backend> gloo_;
  std::shared_ptr<Ranks> ranks_;
  std::optional<std::vector<WorkPtr>> coalesced_;
  std::map<std::string, int> splits_;  // by the ranks of the part
};

// The fallback would treat sparse tensors as tensors of the host.
inline void refuse_sparse(const c10::OperatorHandle&, c10::DispatchKeySet, torch::jit::Stack*) {
  TORCH_CHECK(false, "tccl reduces dense tensors only, like NCCL: use .to_dense() (nn.Embedding: sparse=False)");
}

inline void bind_collectives(py::module& m) {
  py::class_<Tccl, c10d::Backend, c10::intrusive_ptr<Tccl>>(m, "Tccl")  // new_group also calls it for ranks outside the group
      .def("perform_nocolor_split", [](Tccl&, const py::object&) {})
      .def_property_readonly("options", &Tccl::getBackendOptions)
      .def_property_readonly("store", &Tccl::store);
  // members: for each rank its number in the world, its host, its process and when that started ("" if unknown).
  m.def("make_tccl", [](const c10::intrusive_ptr<c10d::Backend>& gloo, const c10::intrusive_ptr<c10d::Store>& store,
                        const std::vector<std::tuple<int, std::string, int64_t, std::string>>& members,
                        std::vector<std::string> devices, bool store_outlives) -> c10::intrusive_ptr<c10d::Backend> {
    auto ranks = std::make_shared<Ranks>(gloo->getRank(), store, std::move(devices));
    ranks->store_outlives = store_outlives;
    for (const auto& [number, host, pid, began] : members) ranks->members.push_back({number, host, pid, began});
    TORCH_CHECK_VALUE(int(members.size()) == gloo->getSize(), members.size(), " members of a group of ", gloo->getSize());
    return c10::make_intrusive<Tccl>(gloo, std::move(ranks));
  });
  m.def("began", &began_at);  // when a process started, "" if it does not exist
}
#else
inline void bind_collectives(py::module&) {}  // this torch was built without torch.distributed
#endif

}  // namespace sdaa
