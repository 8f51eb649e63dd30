// The simulated clock: when each launch starts and ends, in the order of the log.
//
// A device has one compute array and two copy engines, each with one task at a time; a stream runs its work in order; a
// thread of the host continues immediately unless it waits. Computing on the host takes no simulated time.
// tests/torch_sdaa/sdaa/clock_model.py is the same model in Python, and a property test compares the two.
#pragma once
#include "common.h"

namespace sdaa {

using TensorMeta = std::pair<at::ScalarType, std::vector<int64_t>>;

enum class What : uint8_t {
  kernel, copy_in, copy_out, copy_between,  // launches; the number is a signature's
  from,                                     // the device and stream that the next copy_between reads
  record, wait, sync_event, forget,         // the number is an event's
  sync_stream, sync_device,
  slow,   // the number holds a float: the factor by which the device is slower from here on
  pause,  // the number is the microseconds that the host waits
};
inline bool is_launch(What what) { return what <= What::copy_between; }

constexpr uint16_t kWorker = 0x8000;  // in a thread's number: one of autograd's, which works for the thread that called backward
constexpr int kPool = 32;             // streams of a device, used in rotation
constexpr int kStreams = kPool + 2;   // the default stream, the pool, and the stream of collectives
constexpr int32_t kRing = kPool + 1;

// One distinct launch, for which Python computes the cost.
struct Signature {
  std::string op;  // "aten::mm", or "copy_in", "copy_out", "copy_between"
  std::vector<TensorMeta> inputs, outputs;
  double flops = -1;   // if shapes are not sufficient (convolutions); else -1
  What on = What::kernel;  // the engine it runs on
  bool waits = false;  // whether the host waits for it: its result is a number on the host, or determines a shape

  bool selects_by_mask() const;  // the host reads the number of elements that a mask selects

  void classify(What what) {
    static const std::set<std::string> waiting = {
        "aten::_local_scalar_dense", "aten::equal",       "aten::is_nonzero", "aten::nonzero",          "aten::masked_select",
        "aten::_unique",             "aten::_unique2",    "aten::unique_dim", "aten::unique_consecutive", "aten::bincount",
        "aten::unique_dim_consecutive", "aten::_coalesce", "aten::repeat_interleave",
        "torchvision::nms",             "sdaa::fast_rcnn_inference", "sdaa::nms"};
    waits = waiting.count(op) > 0 || selects_by_mask();
    on = op == "aten::_local_scalar_dense" ? What::copy_out : what;
  }
};

inline bool Signature::selects_by_mask() const {
  const bool puts = op.rfind("aten::index_put", 0) == 0 || op == "aten::_index_put_impl_";
  if ((!puts && op != "aten::index") || inputs.size() < (puts ? 3 : 2)) return false;
  if (puts) {  // one value for all elements is a masked fill, which counts nothing
    int64_t elements = 1;
    for (const auto size : inputs.back().second) elements *= size;
    if (elements == 1) return false;
  }
  return std::any_of(inputs.begin() + 1, inputs.end() - (puts ? 1 : 0),
                     [](const auto& each) { return each.first == at::kBool || each.first == at::kByte; });
}

struct Price {
  double seconds = 0, assumed = 0;  // assumed: seconds based on rates that are neither published nor fitted
  bool launches = true;             // false: a view, which costs nothing
  bool known = false;
};

struct Entry {
  uint32_t id;    // a signature's or an event's number
  uint32_t link;  // the profiler's number of the operator
  What what;
  int8_t device;
  uint16_t thread;
  int32_t stream;
};
struct Span {
  uint32_t id, link;
  What what;
  int8_t device;
  uint16_t thread;
  int32_t stream;
  double start, end;
  uint64_t at;  // index in the log
};
struct Tracer {
  uint64_t first = 0;  // of the log's entries
  size_t limit = 0;
  std::vector<Span> spans;
  uint64_t dropped = 0;

  void add(uint64_t at, const Span& span) {
    if (at < first) return;
    if (spans.size() < limit) spans.push_back(span);
    else dropped++;
  }
};

struct EventTime {
  double seconds = 0;
  int device = -1;
};

// The state after all processed entries; times in simulated seconds.
struct Clock {
  struct DeviceState {
    double compute_end = 0, in_end = 0, out_end = 0, compute = 0, copies = 0, assumed = 0, last = 0, slow = 1;
    uint64_t launches = 0;
    uint16_t driver = 0;  // the thread that launched last, except autograd's workers
    std::array<double, kStreams> streams{};
  };
  std::array<DeviceState, kMaxDevices> devices;
  std::unordered_map<uint16_t, double> hosts;
  double latest_host = 0;
  std::unordered_map<uint32_t, EventTime> events;
  std::vector<Tracer*> tracers;
  Entry source{};
  bool blocking = false;  // the host waits for every launch

  static size_t lane(int32_t stream) {
    return stream >= 0 && stream < kStreams ? size_t(stream) : 1 + uint32_t(stream) % kPool;
  }

  // A thread's time; a new thread was created by another, at the latest now.
  double& host_of(uint16_t thread) { return hosts.try_emplace(thread, latest_host).first->second; }

  void wait_until(double& host, double time) {
    host = std::max(host, time);
    latest_host = std::max(latest_host, host);
  }

  double time_of(uint32_t event) const {  // an event that was never recorded is complete
    const auto found = events.find(event);
    return found == events.end() ? 0.0 : found->second.seconds;
  }

  void trace(uint64_t at, const Entry& e, double start, double end) {
    for (auto* tracer : tracers) tracer->add(at, {e.id, e.link, e.what, e.device, e.thread, e.stream, start, end, at});
  }

  void run(const Entry& e, const Signature& what, const Price& price, double& host, uint64_t at) {
    if (!price.launches) return;
    auto& mine = devices[e.device];
    auto& stream = mine.streams[lane(e.stream)];
    auto& engine = what.on == What::kernel ? mine.compute_end : what.on == What::copy_out ? mine.out_end : mine.in_end;
    double start = std::max({host, stream, engine}), factor = mine.slow;
    const bool between = what.on == What::copy_between;
    auto* theirs = between ? &devices[source.device] : nullptr;
    if (between) {
      start = std::max({start, theirs->out_end, theirs->streams[lane(source.stream)]});
      factor = std::max(factor, theirs->slow);
    }
    const double seconds = price.seconds * factor, end = start + seconds;
    engine = stream = end;
    mine.last = std::max(mine.last, end);
    (what.on == What::kernel ? mine.compute : mine.copies) += seconds;
    mine.assumed += price.assumed * factor;
    mine.launches++;
    if (between) {
      theirs->out_end = theirs->streams[lane(source.stream)] = end;
      theirs->last = std::max(theirs->last, end);
      theirs->copies += seconds;
      theirs->assumed += price.assumed * factor;
      trace(at, source, start, end);
    }
    if (!tracers.empty()) {
      Entry shown = e;
      shown.what = what.on;
      trace(at, shown, start, end);
    }
    if (what.waits || blocking) wait_until(host, end);
  }

  // Applies one entry to the clock. `at` is its index in the log; `what` and `price` are those of a launch.
  void advance(const Entry& e, const Signature* what, const Price* price, uint64_t at) {
    auto& mine = devices[e.device];
    const bool worker = e.thread & kWorker;
    if (!worker && is_launch(e.what)) mine.driver = e.thread;
    auto& host = host_of(worker ? mine.driver : e.thread);
    auto& stream = mine.streams[lane(e.stream)];
    switch (e.what) {
      case What::kernel:
      case What::copy_in:
      case What::copy_out:
      case What::copy_between: run(e, *what, *price, host, at); break;
      case What::from: source = e; break;
      case What::record: events[e.id] = {std::max(stream, host), e.device}; break;
      case What::wait: stream = std::max(stream, time_of(e.id)); break;
      case What::sync_event: wait_until(host, time_of(e.id)); break;
      case What::forget: events.erase(e.id); break;
      case What::sync_stream: wait_until(host, stream); break;
      case What::sync_device:
        for (const double end : mine.streams) wait_until(host, end);
        break;
      case What::slow: {
        float factor;
        std::memcpy(&factor, &e.id, sizeof factor);
        mine.slow = factor;
        break;
      }
      case What::pause: wait_until(host, host + 1e-6 * e.id); break;
    }
  }
};

}  // namespace sdaa
