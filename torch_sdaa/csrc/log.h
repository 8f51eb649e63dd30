// The launch log and the simulated clock.
//
// A launch appends a few bytes: which signature (operator, shapes, dtypes), on which stream, from which thread. What a
// signature costs is asked of Python once. Walking the log gives simulated times: each device has one compute array and two
// copy engines, each doing one thing at a time; a stream does its work in order; a thread of the host goes on at once unless
// it waits. The host's own computing takes no simulated time.
#pragma once
#include "common.h"

namespace sdaa {

using TensorMeta = std::pair<at::ScalarType, std::vector<int64_t>>;

// One distinct launch: what Python prices.
struct Signature {
  std::string op;  // "aten::mm", or "copy_in", "copy_out", "copy_between"
  std::vector<TensorMeta> inputs, outputs;
  double flops = -1;  // where shapes alone do not tell (convolutions); else -1
};
struct Price {
  double seconds = 0, assumed = 0;  // assumed: seconds that rest on rates nobody has published or fitted
  bool known = false;
};

enum class What : uint8_t { kernel, copy_in, copy_out, record, wait, sync_event, sync_stream, sync_device, forget };
struct Entry {
  uint32_t id;  // a signature's or an event's number
  What what;
  int8_t device;
  uint16_t thread;
  int32_t stream;
};
struct Span {
  uint32_t id;
  What what;
  int8_t device;
  uint16_t thread;
  int32_t stream;
  double start, end;
};

// ------------------------------------------------------------------------------------------------------- signatures

inline uint64_t mixed(uint64_t hash, uint64_t value) {
  hash ^= value + 0x9e3779b97f4a7c15ull + (hash << 6) + (hash >> 2);
  hash ^= hash >> 30;
  return hash * 0xbf58476d1ce4e5b9ull;
}
inline uint64_t mixed(uint64_t hash, const Tensor& t) {
  if (!t.defined()) return mixed(hash, 255);
  hash = mixed(hash, uint64_t(t.scalar_type()) << 8 | uint64_t(t.dim()));
  if (t.layout() == c10::kStrided)
    for (const int64_t size : t.sizes()) hash = mixed(hash, uint64_t(size));
  return hash;
}
inline void add_meta(std::vector<TensorMeta>& to, const Tensor& t) {
  if (t.defined()) to.emplace_back(t.scalar_type(), t.sizes().vec());
}

struct Log {
  std::mutex lock;
  std::vector<Entry> entries;
  std::unordered_map<uint64_t, uint32_t> known;
  std::vector<Signature> signatures;
  std::vector<Price> prices;
  std::vector<uint64_t> counts;  // launches by signature, over the whole life
  // the clock's state after the entries that have been walked; times in simulated seconds
  std::unordered_map<int64_t, double> stream_end;
  std::unordered_map<uint16_t, double> host;
  std::unordered_map<uint32_t, double> events;
  struct Busy {
    double compute_end = 0, in_end = 0, out_end = 0, compute = 0, copies = 0, assumed = 0, last = 0;
    uint64_t launches = 0;
  };
  std::array<Busy, kMaxDevices> busy;
  std::vector<Span> spans;
  bool tracing = false;
  std::atomic<uint32_t> next_event{1};
};
inline Log& the_log() {
  static Log* one = new Log;  // never destroyed: autograd's threads outlive main
  return *one;
}
inline std::atomic<uint64_t> n_launches{0};
inline py::object* pricer = nullptr;  // set by Python; never freed: the interpreter may be gone

inline uint16_t thread_number() {
  static std::atomic<uint16_t> next{0};
  static thread_local uint16_t mine = next++;
  return mine;
}

constexpr size_t kWalkAt = 1 << 16;

void settle_without_python();

inline void append(Log& log, Entry entry) {
  bool full;
  {
    std::lock_guard<std::mutex> hold(log.lock);
    log.entries.push_back(entry);
    if (entry.what == What::kernel || entry.what == What::copy_in || entry.what == What::copy_out) log.counts[entry.id]++;
    full = log.entries.size() % kWalkAt == 0;
  }
  if (full) settle_without_python();
}

// Appends a launch; `make` describes it, and is called only for one that was never seen.
template <class Make>
void launched(What what, uint64_t hash, DeviceIndex device, int32_t stream, Make&& make) {
  struct Seen {
    uint64_t hash = 0;
    uint32_t id = 0;
  };
  static thread_local std::array<Seen, 512> cache;
  n_launches.fetch_add(1, std::memory_order_relaxed);
  auto& seen = cache[hash % cache.size()];
  auto& log = the_log();
  if (seen.hash != hash) {
    std::lock_guard<std::mutex> hold(log.lock);
    auto found = log.known.find(hash);
    if (found == log.known.end()) {
      found = log.known.emplace(hash, uint32_t(log.signatures.size())).first;
      log.signatures.push_back(make());
      log.prices.emplace_back();
      log.counts.push_back(0);
    }
    seen = {hash, found->second};
  }
  append(log, {seen.id, what, int8_t(device), thread_number(), stream});
}

// ------------------------------------------------------------------------------------------------------------- clock

inline int64_t lane(int8_t device, int32_t stream) { return int64_t(device) << 32 | uint32_t(stream); }

// Puts one entry behind what the clock has seen. The lock is held.
inline void advance(Log& log, const Entry& e) {
  auto& host = log.host[e.thread];
  auto& stream = log.stream_end[lane(e.device, e.stream)];
  auto& busy = log.busy[e.device];
  switch (e.what) {
    case What::kernel:
    case What::copy_in:
    case What::copy_out: {
      const auto& price = log.prices[e.id];
      double& engine = e.what == What::kernel ? busy.compute_end : e.what == What::copy_in ? busy.in_end : busy.out_end;
      const double start = std::max({host, stream, engine}), end = start + price.seconds;
      engine = stream = end;
      busy.last = std::max(busy.last, end);
      (e.what == What::kernel ? busy.compute : busy.copies) += price.seconds;
      busy.assumed += price.assumed;
      busy.launches++;
      if (log.tracing) log.spans.push_back({e.id, e.what, e.device, e.thread, e.stream, start, end});
      break;
    }
    case What::record: log.events[e.id] = std::max(stream, host); break;
    case What::wait:
      if (auto found = log.events.find(e.id); found != log.events.end()) stream = std::max(stream, found->second);
      break;
    case What::sync_event:
      if (auto found = log.events.find(e.id); found != log.events.end()) host = std::max(host, found->second);
      break;
    case What::forget: log.events.erase(e.id); break;
    case What::sync_stream: host = std::max(host, stream); break;
    case What::sync_device:
      for (const auto& [key, end] : log.stream_end)
        if (key >> 32 == e.device) host = std::max(host, end);
      break;
  }
}

inline bool priced(const Log& log, const Entry& e) {
  return e.what > What::copy_out || log.prices[e.id].known;
}

// Walks the log as far as all is priced. The lock is held.
inline void walk(Log& log) {
  size_t done = 0;
  while (done < log.entries.size() && priced(log, log.entries[done])) advance(log, log.entries[done++]);
  log.entries.erase(log.entries.begin(), log.entries.begin() + int64_t(done));
}

inline void settle_without_python() {
  std::lock_guard<std::mutex> hold(the_log().lock);
  walk(the_log());
}

inline py::tuple described(const Signature& s) {
  auto list = [](const std::vector<TensorMeta>& all) {
    py::list out;
    for (const auto& [dtype, sizes] : all) out.append(py::make_tuple(c10::toString(dtype), c10::elementSize(dtype), py::tuple(py::cast(sizes))));
    return out;
  };
  return py::make_tuple(s.op, list(s.inputs), list(s.outputs), s.flops);
}

// Asks Python what new signatures cost, and walks the whole log. The interpreter's lock is held, the log's is not.
inline void settle() {
  auto& log = the_log();
  for (;;) {
    std::vector<std::pair<uint32_t, Signature>> fresh;
    {
      py::gil_scoped_release release;
      std::lock_guard<std::mutex> hold(log.lock);
      walk(log);
      if (log.entries.empty()) return;
      for (uint32_t i = 0; i < log.prices.size(); i++)
        if (!log.prices[i].known) fresh.emplace_back(i, log.signatures[i]);
    }
    py::list asked;
    for (const auto& [id, signature] : fresh) asked.append(described(signature));
    TORCH_INTERNAL_ASSERT(pricer, "nobody prices launches");
    const auto answers = (*pricer)(asked).cast<std::vector<std::pair<double, double>>>();
    TORCH_INTERNAL_ASSERT(answers.size() == fresh.size(), "the prices of some launches are missing");
    std::lock_guard<std::mutex> hold(log.lock);
    for (size_t i = 0; i < fresh.size(); i++) log.prices[fresh[i].first] = {answers[i].first, answers[i].second, true};
  }
}

inline double event_time(uint32_t id) {
  py::gil_scoped_acquire acquire;
  settle();
  std::lock_guard<std::mutex> hold(the_log().lock);
  auto found = the_log().events.find(id);
  return found == the_log().events.end() ? 0.0 : found->second;
}

inline void bind_log(py::module& m) {
  m.def("set_pricer", [](py::object f) { pricer = new py::object(std::move(f)); });
  m.def("settle", &settle);
  m.def("launches", [] { return n_launches.load(); });
  m.def("times", [](int i) {
    auto& log = the_log();
    std::lock_guard<std::mutex> hold(log.lock);
    const auto& busy = log.busy[i];
    return std::map<std::string, double>{{"now", busy.last}, {"compute", busy.compute}, {"copies", busy.copies},
                                         {"assumed", busy.assumed}, {"launches", double(busy.launches)}};
  });
  m.def("signatures", [] {  // every distinct launch: description, how often, seconds, assumed seconds
    settle();
    auto& log = the_log();
    std::lock_guard<std::mutex> hold(log.lock);
    py::list out;
    for (size_t i = 0; i < log.signatures.size(); i++)
      out.append(py::make_tuple(described(log.signatures[i]), log.counts[i], log.prices[i].seconds, log.prices[i].assumed));
    return out;
  });
  m.def("trace", [](bool on) {  // spans since the last call: signature's number, kind, device, stream, thread, start, end
    settle();
    auto& log = the_log();
    std::lock_guard<std::mutex> hold(log.lock);
    py::list out;
    for (const auto& s : log.spans)
      out.append(py::make_tuple(s.id, int(s.what), int(s.device), s.stream, int(s.thread), s.start, s.end));
    log.spans.clear();
    log.tracing = on;
    return out;
  });
}

}  // namespace sdaa
