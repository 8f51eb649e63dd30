// A collective in progress: its work object, and the step times that DistributedDataParallel logs.
#pragma once
#include <c10/core/InferenceMode.h>
#include "common.h"
#include "device.h"
#include "log.h"
#include "ranks.h"

#ifdef SDAA_COLLECTIVES
namespace sdaa {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using Tensors = std::vector<Tensor>;
using After = std::function<void()>;
using c10d::OpType;

// A collective in progress. Gloo's threads complete it; waiting for it makes the caller's stream wait on the clock, as with NCCL.
struct Job final : c10d::Work {
  Job(std::shared_ptr<Ranks> ranks, OpType type, const char* name, Tensors results)
      : Work(ranks->rank, type), ranks_(std::move(ranks)), name_(name), results_(std::move(results)),
        future_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::ofTensors())) {}
  ~Job() override {
    if (event_) note(What::forget, device_, 0, event_);
  }

  void start(DeviceIndex device, uint32_t event, bool host_waits) { device_ = device, event_ = event, host_waits_ = host_waits; }

  // Runs when gloo's work has completed. Some works have no future, and complete only when waited for.
  void follow(WorkPtr inner, After after) {
    inner_ = std::move(inner);
    after_ = std::move(after);
    auto self = c10::intrusive_ptr<Job>::reclaim_copy(this);
    if (const auto future = future_of(*inner_)) {
      future->addCallback([self](c10::ivalue::Future& done) { self->end(done.exception_ptr()); });
      return;
    }
    std::thread([self] {
      const c10::InferenceMode unrecorded;  // waiting copies the results of some works
      std::exception_ptr error;
      try {
        self->inner_->wait();
        if (self->opType_ == OpType::RECVANYSOURCE) self->source_ = self->inner_->sourceRank();
      } catch (...) {
        error = std::current_exception();
      }
      self->end(error);
    }).detach();
  }

  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override {
    {
      std::unique_lock<std::mutex> hold(mutex_);
      const auto ended = [&] { return completed_; };
      if (timeout == kNoTimeout || timeout.count() < 0) cv_.wait(hold, ended);
      else if (!cv_.wait_for(hold, timeout, ended))
        throw_lost(ranks_->late(name_, timeout.count() / 1000.0));
      if (exception_) std::rethrow_exception(exception_);
    }
    synchronize();
    return true;
  }
  void synchronize() override {
    if (!event_) return;
    const auto stream = int32_t(streams[device_]);
    note(host_waits_ ? What::sync_event : What::wait, device_, stream, event_);
  }
  Tensors result() override { return results_; }
  int sourceRank() const override { return source_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
  uint64_t getSequencenumber() const override { return inner_ ? inner_->getSequencenumber() : 0; }

 private:
  static c10::intrusive_ptr<c10::ivalue::Future> future_of(Work& work) {
    try {
      return work.getFuture();
    } catch (const c10::Error&) {
      return {};
    }
  }

  void end(std::exception_ptr error) {
    if (!error && after_) try {
        const c10::InferenceMode unrecorded;  // the tensors may be those of torch.inference_mode() in the caller's thread
        after_();
      } catch (...) {
        error = std::current_exception();
      }
    if (error) error = ranks_->explained(name_, error);
    after_ = nullptr;
    if (error) future_->setError(error);
    else future_->markCompleted(c10::IValue(results_));
    finish(error);
  }

  std::shared_ptr<Ranks> ranks_;
  const char* name_;
  Tensors results_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  WorkPtr inner_;
  After after_;
  int source_ = -1;
  DeviceIndex device_ = 0;
  uint32_t event_ = 0;
  bool host_waits_ = false;
};

// Several jobs completed by one wait.
struct Jobs final : c10d::Work {
  explicit Jobs(std::vector<WorkPtr> all) : all_(std::move(all)) {}
  bool isCompleted() override {
    return std::all_of(all_.begin(), all_.end(), [](const WorkPtr& one) { return one->isCompleted(); });
  }
  bool isSuccess() const override {
    return std::all_of(all_.begin(), all_.end(), [](const WorkPtr& one) { return one->isSuccess(); });
  }
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override {
    for (const auto& one : all_) one->wait(timeout);
    return true;
  }
  void synchronize() override {
    for (const auto& one : all_) one->synchronize();
  }
  Tensors result() override {
    Tensors found;
    for (const auto& one : all_)
      for (auto& t : one->result()) found.push_back(t);
    return found;
  }

 private:
  std::vector<WorkPtr> all_;
};

// The step times that DistributedDataParallel logs: simulated ones.
struct StepTimer final : c10d::Timer {
  explicit StepTimer(Device device) : device_(device.index()) {}
  ~StepTimer() override {
    for (const auto& [_, id] : ids_) note(What::forget, device_, 0, id);
  }
  void record(Event event) override {
    c10d::Timer::record(event);
    auto& id = ids_[event];
    if (!id) id = next_event++;
    note(What::record, device_, int32_t(streams[device_]), id);
  }
  std::optional<int64_t> measureDifference(Event start, Event end) override {
    const auto from = ids_.find(start), to = ids_.find(end);
    if (from == ids_.end() || to == ids_.end()) return std::nullopt;
    const double passed = event_time(to->second).seconds - event_time(from->second).seconds;
    return passed < 0 ? std::nullopt : std::optional<int64_t>(int64_t(passed * 1e9));
  }

 private:
  DeviceIndex device_;
  std::map<Event, uint32_t> ids_;
};

}  // namespace sdaa

namespace c10d {
C10_REGISTER_TYPED_CLASS(TimerRegistry, c10::kPrivateUse1, sdaa::StepTimer);
}
#endif
