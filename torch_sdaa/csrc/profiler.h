// torch.profiler's device side: its events are the launch log's spans. All durations are simulated. On a trace's axis a device's
// row starts with the profile, and then shows simulated time.
#pragma once
#include <torch/csrc/profiler/stubs/base.h>
#include "common.h"
#include "device.h"
#include "log.h"
#if __has_include(<torch/csrc/profiler/standalone/privateuse1_profiler.h>) && __has_include(<libkineto.h>)
#define SDAA_KINETO
#define FMT_HEADER_ONLY 1
#ifndef USE_KINETO
#define USE_KINETO
#endif
#include <libkineto.h>
#include <output_base.h>
#include <torch/csrc/profiler/standalone/privateuse1_profiler.h>
#endif

namespace sdaa {

// --------------------------------------------------------- an event before and one after each operator (use_kineto=False)

struct Stubs final : torch::profiler::impl::ProfilerStubs {
  using Held = torch::profiler::impl::ProfilerVoidEventStub;
  void record(DeviceIndex* device, Held* event, int64_t* cpu_ns) const override {
    if (device) *device = current;
    void* made = nullptr;
    Guard().record(&made, Guard().getStream(Device(kSdaa, current)), current, c10::EventFlag::BACKEND_DEFAULT);
    *event = Held(made, [index = current](void* e) { Guard().destroyEvent(e, index); });
    if (cpu_ns) *cpu_ns = c10::getTime();
  }
  float elapsed(const Held* from, const Held* to) const override {  // microseconds, simulated
    const auto *first = static_cast<Event*>(from->get()), *second = static_cast<Event*>(to->get());
    return float(1e6 * (event_time(second->id).seconds - event_time(first->id).seconds));
  }
  void mark(const char*) const override {}
  void rangePush(const char*) const override {}
  void rangePop() const override {}
  bool enabled() const override { return true; }
  void onEachDevice(std::function<void(int)> op) const override {
    for (int i = 0; i < n_devices; i++) op(i);
  }
  void synchronize() const override { Guard().synchronizeDevice(current); }
};

#ifdef SDAA_KINETO

inline thread_local std::vector<uint32_t> correlations;

struct ProfilerSession final : libkineto::IActivityProfilerSession {
  ~ProfilerSession() override {
    if (tracer) stop_tracer(tracer);
  }
  static int64_t now_ns() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  }
  void start() override {
    began = now_ns();
    tracer = start_tracer();
    status_ = libkineto::TraceStatus::RECORDING;
  }
  void stop() override {
    ended = now_ns();
    status_ = libkineto::TraceStatus::PROCESSING;
  }
  std::vector<std::string> errors() override { return {}; }
  void processTrace(libkineto::ActivityLogger& logger) override {
    processTrace(logger, [](int32_t) { return nullptr; }, began, ended);
  }
  void processTrace(libkineto::ActivityLogger& logger, libkineto::getLinkedActivityCallback linked, int64_t, int64_t) override {
    if (!tracer) return;
    {
      py::gil_scoped_acquire acquire;
      settle();
    }
    const auto found = stop_tracer(std::exchange(tracer, nullptr));
    buffer = std::make_unique<libkineto::CpuTraceBuffer>();
    buffer->span = libkineto::TraceSpan(began, ended, "__sdaa_profiler__");
    buffer->gpuOpCount = int(found.spans.size());
    double first = INFINITY;
    std::set<int> devices;
    for (const auto& s : found.spans) first = std::min(first, s.start);
    for (const auto& s : found.spans) {
      devices.insert(s.device);
      const bool copy = s.what != What::kernel;
      buffer->emplace_activity(buffer->span, copy ? libkineto::ActivityType::GPU_MEMCPY : libkineto::ActivityType::CONCURRENT_KERNEL,
                               found.names[s.id] + " (simulated)");
      auto& activity = *buffer->activities.back();
      activity.startTime = began + int64_t((s.start - first) * 1e9);
      activity.endTime = began + int64_t((s.end - first) * 1e9);
      activity.id = int32_t(s.link);
      activity.device = s.device;
      activity.resource = s.stream;
      activity.threadId = s.thread;
      activity.flow.id = s.link;
      activity.flow.type = libkineto::kLinkAsyncCpuGpu;
      activity.flow.start = 0;
      activity.linked = s.link ? linked(int32_t(s.link)) : nullptr;
      activity.addMetadataQuoted("time", "simulated");
      activity.log(logger);
    }
    for (const int device : devices) {
      const auto name = "sdaa:" + std::to_string(device) + " (simulated time)";
      logger.handleDeviceInfo({device, libkineto::kExceedMaxPid + device, name, name}, began);
    }
  }
  std::unique_ptr<libkineto::DeviceInfo> getDeviceInfo() override { return nullptr; }
  std::vector<libkineto::ResourceInfo> getResourceInfos() override { return {}; }
  std::unique_ptr<libkineto::CpuTraceBuffer> getTraceBuffer() override { return std::move(buffer); }
  void pushCorrelationId(uint64_t id) override {
    correlations.push_back(correlation);
    correlation = uint32_t(id);
  }
  void popCorrelationId() override {
    correlation = correlations.empty() ? 0 : correlations.back();
    if (!correlations.empty()) correlations.pop_back();
  }

  int64_t began = 0, ended = 0;
  Tracer* tracer = nullptr;
  std::unique_ptr<libkineto::CpuTraceBuffer> buffer;
};

struct Profiler final : libkineto::IActivityProfiler {
  using Types = std::set<libkineto::ActivityType>;
  const std::string& name() const override {
    static const std::string mine = "sdaa";
    return mine;
  }
  const Types& availableActivities() const override {
    static const Types mine = {libkineto::ActivityType::GPU_MEMCPY, libkineto::ActivityType::CONCURRENT_KERNEL};
    return mine;
  }
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(const Types& asked, const libkineto::Config&) override {
    if (!asked.count(libkineto::ActivityType::CONCURRENT_KERNEL)) return nullptr;
    return std::make_unique<ProfilerSession>();
  }
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(int64_t, int64_t, const Types& asked,
                                                                 const libkineto::Config& config) override {
    return configure(asked, config);
  }
};
#endif

// ------------------------------------------------------------------------------------------------- torch.sdaa.profile

// Spans of the devices since tracing was switched on, with their index in the log, and each signature with its cost.
inline py::tuple traced_in_full(bool on) {
  settle();
  auto& log = the_log();
  std::vector<Signature> signatures;
  std::vector<Price> prices;
  {
    std::lock_guard<std::mutex> hold(log.lock);
    signatures = log.signatures, prices = log.prices;
  }
  static Tracer* tracer = nullptr;  // under the interpreter's lock
  Traced found;
  if (tracer) found = stop_tracer(std::exchange(tracer, nullptr));
  if (on) tracer = start_tracer();
  py::list spans, known;
  for (const auto& s : found.spans)
    spans.append(py::make_tuple(s.id, int(s.what), int(s.device), s.stream, s.start, s.end, s.at));
  for (size_t i = 0; !on && i < signatures.size(); i++)
    known.append(py::make_tuple(described(signatures[i]), prices[i].seconds, prices[i].assumed, signatures[i].waits));
  return py::make_tuple(spans, known, found.dropped);
}

inline void bind_profiler(py::module& m) { m.def("trace_in_full", &traced_in_full); }

inline void register_profiler() {
  static Stubs stubs;
  torch::profiler::impl::registerPrivateUse1Methods(&stubs);
#ifdef SDAA_KINETO
  torch::profiler::impl::PrivateUse1ProfilerRegistry::instance().registerFactory([] { return std::make_unique<Profiler>(); });
#endif
}

}  // namespace sdaa
