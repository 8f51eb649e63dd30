// Backend "tccl" of torch.distributed: collectives on the device's bytes, carried by gloo, timed by the card's clock.
//
// Each process has a clock of its own: what a collective costs is counted from where this rank starts it; waiting for a rank
// that comes later is not.
#pragma once
#include "alias.h"
#include "common.h"
#include "device.h"
#include "jobs.h"
#include "log.h"
#include "ranks.h"

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

// Gloo cuts the gathered tensor along its first dimension; only the number of elements counts, as with NCCL.
inline Tensors flat_hosts_of(const char* name, const Tensors& tensors) {
  Tensors all;
  for (const auto& t : tensors) {
    TORCH_CHECK_VALUE(t.is_contiguous(), "tccl: ", name, " of a tensor that is not contiguous: use .contiguous()");
    all.push_back(host(t).view({-1}));
  }
  return all;
}

// What gloo has not of a reduction: averages are sums, divided afterwards; a factor is multiplied in before.
struct Reduction {
  c10d::ReduceOp op;
  bool average = false;
  std::optional<Tensor> factor;

  explicit Reduction(const c10d::ReduceOp& wanted) : op(wanted) {
    average = wanted == c10d::ReduceOp::AVG;
    if (wanted == c10d::ReduceOp::PREMUL_SUM) {
      const auto* given = static_cast<const c10d::PreMulSumSupplement*>(wanted.supplement_.get());
      factor = given->tensor_factor.defined() ? host(given->tensor_factor) : at::scalar_tensor(given->double_factor, at::kDouble);
    }
    if (average || factor) op = c10d::ReduceOp(c10d::ReduceOp::SUM);
  }
  // The tensors to hand in: new ones where a factor is multiplied in.
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
  ~Tccl() override {  // gloo's destructor waits for its threads, and they perhaps for a rank that is gone
    if (ranks_->failed) {
      static_cast<void>(gloo_.release());
      return;
    }
    // Those threads may want the interpreter lock to let go of a tensor, and DDP's reducer is destroyed under it.
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
    // In this group's store: the one that comes with the call is named by how many groups this process has made, which may
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
    const Reduction how(opts.reduceOp);
    auto o = with_op(opts, how);
    auto out = hosts_of(outputs);
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
    const Reduction how(opts.reduceOp);
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
    return run(OpType::ALLTOALL, "all_to_all", inputs, outputs, [&] {
      auto out = hosts_of(outputs), in = hosts_of(inputs);
      return gloo_->alltoall(out, in, opts);
    });
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
    const Reduction how(opts.reduceOp);
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
                    device.value_or(Device(kSdaa, current)), " and ", t.device(), ": all tensors of a rank's collective lie on its one "
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

  // Puts the collective on the clock: behind what this rank's stream has done, on a stream of the group's own.
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

// Sparse tensors would be taken for the host's by the fallback.
inline void refuse_sparse(const c10::OperatorHandle&, c10::DispatchKeySet, torch::jit::Stack*) {
  TORCH_CHECK(false, "tccl reduces dense tensors, as NCCL does, not sparse ones: use .to_dense() (nn.Embedding: sparse=False)");
}

inline void bind_collectives(py::module& m) {
  py::class_<Tccl, c10d::Backend, c10::intrusive_ptr<Tccl>>(m, "Tccl")  // new_group calls it for ranks that are left out
      .def("perform_nocolor_split", [](Tccl&, const py::object&) {})
      .def_property_readonly("options", &Tccl::getBackendOptions)
      .def_property_readonly("store", &Tccl::store);
  // members: of each rank its number in the world, its host, its process and when that began ("" where that is not known).
  m.def("make_tccl", [](const c10::intrusive_ptr<c10d::Backend>& gloo, const c10::intrusive_ptr<c10d::Store>& store,
                        const std::vector<std::tuple<int, std::string, int64_t, std::string>>& members,
                        std::vector<std::string> devices, bool store_outlives) -> c10::intrusive_ptr<c10d::Backend> {
    auto ranks = std::make_shared<Ranks>(gloo->getRank(), store, std::move(devices));
    ranks->store_outlives = store_outlives;
    for (const auto& [number, host, pid, began] : members) ranks->members.push_back({number, host, pid, began});
    TORCH_CHECK_VALUE(int(members.size()) == gloo->getSize(), members.size(), " members of a group of ", gloo->getSize());
    return c10::make_intrusive<Tccl>(gloo, std::move(ranks));
  });
  m.def("began", &began_at);  // when a process began, "" where there is none
}
#else
inline void bind_collectives(py::module&) {}  // this torch was built without torch.distributed
#endif

}  // namespace sdaa
