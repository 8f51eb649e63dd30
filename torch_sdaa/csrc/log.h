// The launch log: operator, stream and thread of each launch. The clock (clock.h) processes it.
//
// A launch appends a few bytes. Python computes the cost of each distinct launch (operator, shapes, dtypes) once.
#pragma once
#include "clock.h"
#include "common.h"
#include "faults.h"
#include "host_spans.h"

namespace sdaa {

inline uint64_t mixed(uint64_t hash, uint64_t value) {
  hash ^= value + 0x9e3779b97f4a7c15ull + (hash << 6) + (hash >> 2);
  hash ^= hash >> 30;
  return hash * 0xbf58476d1ce4e5b9ull;
}
inline const at::SparseTensorImpl* sparse_impl(const Tensor& t) {
  return static_cast<const at::SparseTensorImpl*>(t.unsafeGetTensorImpl());
}
inline uint64_t mixed(uint64_t hash, const Tensor& t) {
  if (!t.defined()) return mixed(hash, 255);
  hash = mixed(hash, uint64_t(t.scalar_type()) << 8 | uint64_t(t.dim()));
  if (t.is_sparse()) return mixed(mixed(hash, sparse_impl(t)->values()), sparse_impl(t)->indices());
  if (!t.is_nested())
    for (const int64_t size : t.sizes()) hash = mixed(hash, uint64_t(size));
  return hash;
}
inline void add_meta(std::vector<TensorMeta>& to, const Tensor& t) {
  if (!t.defined()) return;
  if (t.is_sparse()) {  // the stored type, not the one it represents
    add_meta(to, sparse_impl(t)->values());
    add_meta(to, sparse_impl(t)->indices());
  } else if (t.is_nested()) {
    to.emplace_back(t.scalar_type(), std::vector<int64_t>{t.numel()});
  } else {
    to.emplace_back(t.scalar_type(), t.sizes().vec());
  }
}

struct Limits {
  size_t walk_at = 1 << 16;     // entries after which the log is processed automatically; a power of 2
  size_t price_at = 1 << 20;    // entries after which the host waits for costs
  size_t signatures = 1 << 16;  // distinct launches that are kept
  size_t spans = 1 << 22;       // of one trace
  bool reached(size_t entries) const { return (entries & (walk_at - 1)) == 0; }
};
inline Limits limits;  // tests set smaller ones

// Totals of launches of an operator whose signatures were dropped.
struct Retired {
  uint64_t count = 0;
  double seconds = 0, assumed = 0;
};

inline uint32_t fresh_epoch() {
  static std::atomic<uint32_t> next{1};
  return next++;
}

struct Log {
  std::mutex lock;
  std::vector<Entry> entries;
  uint64_t total = 0, walked = 0;  // launches, entries already processed: over the lifetime
  uint32_t epoch = fresh_epoch();  // of the signatures' numbers; unique among logs
  std::unordered_map<uint64_t, uint32_t> known;
  std::vector<Signature> signatures;
  std::vector<Price> prices;
  std::vector<uint64_t> counts;  // launches by signature
  std::map<std::string, Retired> retired;
  std::map<std::string, std::string> unpriced;  // operators whose cost failed, and why
  Clock clock;
};
inline Log& the_log() {
  static Log* one = new Log;  // never destroyed: autograd's threads outlive main
  return *one;
}
inline py::object* pricer = nullptr;  // set by Python; never freed: the interpreter may be gone

// A thread's number; autograd's workers wait only for their caller, which the high bit tells the clock.
inline uint16_t thread_number() {
  static std::atomic<uint16_t> next{0};
  static thread_local uint16_t mine = [] {
    char name[16] = "";
    pthread_getname_np(pthread_self(), name, sizeof name);
    return uint16_t((next++ & 0x7fff) | (strncmp(name, "pt_autograd_", 12) == 0 ? kWorker : 0));
  }();
  return mine;
}

inline thread_local uint32_t correlation = 0;  // of the operator that the profiler sees in this thread; 0: the profiler is off

inline bool priced(const Log& log, const Entry& e) { return !is_launch(e.what) || log.prices[e.id].known; }

// Processes the log as far as costs are known. The lock is held.
inline void walk(Log& log) {
  size_t done = 0;
  while (done < log.entries.size() && priced(log, log.entries[done])) {
    const auto& e = log.entries[done++];
    log.clock.advance(e, is_launch(e.what) ? &log.signatures[e.id] : nullptr, is_launch(e.what) ? &log.prices[e.id] : nullptr,
                      log.walked++);
  }
  if (done) log.entries.erase(log.entries.begin(), log.entries.begin() + int64_t(done));
  if (!log.entries.empty() || log.signatures.size() < limits.signatures || !log.clock.tracers.empty()) return;
  for (size_t i = 0; i < log.signatures.size(); i++) {
    auto& sum = log.retired[log.signatures[i].op];
    sum.count += log.counts[i];
    sum.seconds += log.prices[i].seconds * double(log.counts[i]);
    sum.assumed += log.prices[i].assumed * double(log.counts[i]);
  }
  log.known.clear();
  log.signatures.clear();
  log.prices.clear();
  log.counts.clear();
  log.epoch = fresh_epoch();
}

void settle();

inline bool interpreter_is_up() {
#if PY_VERSION_HEX >= 0x030d0000
  return Py_IsInitialized() && !Py_IsFinalizing();
#else
  return Py_IsInitialized() && !_Py_IsFinalizing();
#endif
}

inline void shorten(Log& log) {
  size_t left;
  {
    std::lock_guard<std::mutex> hold(log.lock);
    walk(log);
    left = log.entries.size();
  }
  if (left >= limits.price_at && pricer && &log == &the_log() && interpreter_is_up()) {
    py::gil_scoped_acquire acquire;
    try {
      settle();
    } catch (py::error_already_set& error) {  // an event may be in its destructor, which must not throw; synchronize will
      error.discard_as_unraisable("the launch log of torch_sdaa");
    }
  }
}

inline void append(Log& log, Entry entry) {
  if (forked) return;
  bool full;
  {
    std::lock_guard<std::mutex> hold(log.lock);
    log.entries.push_back(entry);
    full = limits.reached(log.entries.size());
  }
  if (full) shorten(log);
}
inline void note(What what, DeviceIndex device, c10::StreamId stream, uint32_t id = 0) {
  append(the_log(), {id, correlation, what, int8_t(device), thread_number(), int32_t(stream)});
}

// Raises an error in a forked process or for a lost device; waits first for a device that hangs.
inline void watch(DeviceIndex device) {
  check_process();
  std::string why;
  int64_t patience = 0;
  {
    std::lock_guard<std::mutex> hold(lost_lock);
    why = lost[device].why;
    std::swap(patience, lost[device].patience_us);
  }
  if (patience) note(What::pause, device, 0, uint32_t(patience));
  TORCH_CHECK(why.empty(), why);
}
inline void check_device(DeviceIndex device) {
  if (watchful.load(std::memory_order_relaxed)) watch(device);
}

void strict_launch(Log& log, uint32_t id, DeviceIndex device);

// Returns a launch's number; `make` describes it, and is only called for a new one. The lock is held.
template <class Make>
uint32_t numbered(Log& log, uint64_t hash, What what, Make&& make) {
  const auto found = log.known.find(hash);
  if (found != log.known.end()) return found->second;
  Signature made = make();
  made.classify(what);
  const auto id = uint32_t(log.signatures.size());
  log.signatures.push_back(std::move(made));
  log.prices.emplace_back();
  log.counts.push_back(0);
  log.known.emplace(hash, id);
  return id;
}

struct Peer {  // the source device of a copy
  DeviceIndex device;
  int32_t stream;
};

// Appends a launch.
template <class Make>
void launched(What what, uint64_t hash, DeviceIndex device, int32_t stream, Make&& make, const Peer* peer = nullptr,
              Log& log = the_log()) {
  struct Seen {
    uint64_t hash = 0;
    uint32_t id = 0, epoch = 0;
  };
  static thread_local std::array<Seen, 512> cache;
  Within span(Doing::launch, "launch");
  const bool watching = watchful.load(std::memory_order_relaxed);
  if (watching) watch(device);
  auto& seen = cache[hash % cache.size()];
  const auto thread = thread_number();
  bool full;
  uint32_t id;
  {
    std::lock_guard<std::mutex> hold(log.lock);
    if (seen.hash != hash || seen.epoch != log.epoch) seen = {hash, numbered(log, hash, what, make), log.epoch};
    id = seen.id;
    if (peer) log.entries.push_back({id, correlation, What::from, int8_t(peer->device), thread, peer->stream});
    log.entries.push_back({id, correlation, what, int8_t(device), thread, stream});
    span.at = log.walked + log.entries.size() - 1;
    log.counts[id]++;
    log.total++;
    full = limits.reached(log.entries.size());
  }
  if (full) shorten(log);
  if (watching && strict) strict_launch(log, id, device);
}

// ------------------------------------------------------------------------------------------------- talking to Python

inline py::tuple described(const Signature& s) {
  auto list = [](const std::vector<TensorMeta>& all) {
    py::list out;
    for (const auto& [dtype, sizes] : all) out.append(py::make_tuple(c10::toString(dtype), c10::elementSize(dtype), py::tuple(py::cast(sizes))));
    return out;
  };
  return py::make_tuple(s.op, list(s.inputs), list(s.outputs), s.flops);
}

// Costs of some launches from Python; empty if it cannot compute them, with the reason in `why`. Ctrl-C passes through.
inline std::optional<std::vector<Price>> asked_prices(const py::list& launches, std::string& why) {
  TORCH_INTERNAL_ASSERT(pricer, "no pricer is set");
  try {
    std::vector<Price> prices;
    for (const auto& [seconds, assumed, is_one] : (*pricer)(launches).cast<std::vector<std::tuple<double, double, bool>>>()) {
      if (!(seconds >= 0 && std::isfinite(seconds) && std::isfinite(assumed))) break;
      prices.push_back({seconds, assumed, is_one, true});
    }
    if (prices.size() == launches.size()) return prices;
    why = "its price is not a number of seconds";
  } catch (py::error_already_set& error) {
    if (!error.matches(PyExc_Exception)) throw;
    why = error.what();
  } catch (const py::cast_error& error) {
    why = error.what();
  }
  why = why.substr(0, why.find('\n'));
  return std::nullopt;
}

// The same, launch by launch if the batch fails: a launch without a cost takes no time, and `failed` has the reason.
inline std::vector<Price> prices_of(const py::list& launches, std::vector<std::string>& failed) {
  std::string why;
  if (auto all = asked_prices(launches, why)) return std::move(*all);
  std::vector<Price> prices;
  for (size_t i = 0; i < failed.size(); i++) {
    py::list one;
    one.append(launches[i]);
    if (const auto price = asked_prices(one, why)) {
      prices.push_back(price->front());
    } else {
      prices.push_back({0, 0, true, true});
      failed[i] = why;
    }
  }
  return prices;
}

inline void warn_unpriced(const std::string& op, const std::string& why) {
  static bool warned = false;  // under the interpreter's lock
  if (std::exchange(warned, true)) return;
  const auto text = op + " has no simulated time, because it could not be priced: " + why + ". torch.sdaa.time_summary() lists all such operators";
  if (PyErr_WarnEx(PyExc_RuntimeWarning, text.c_str(), 1) < 0) throw py::error_already_set();
}

// Gets the costs of new signatures from Python, and processes the log. The interpreter's lock is held, the log's is not: no
// Python object is created under the log's lock, as the collector may destroy an event, which appends to the log.
inline void settle() {
  if (forked) return;
  auto& log = the_log();
  for (;;) {
    std::vector<std::pair<uint32_t, Signature>> fresh;
    uint32_t epoch;
    {
      py::gil_scoped_release release;
      std::lock_guard<std::mutex> hold(log.lock);
      walk(log);
      if (log.entries.empty()) return;
      epoch = log.epoch;
      for (uint32_t i = 0; i < log.prices.size(); i++)
        if (!log.prices[i].known) fresh.emplace_back(i, log.signatures[i]);
    }
    py::list asked;
    for (const auto& [id, signature] : fresh) asked.append(described(signature));
    std::vector<std::string> failed(fresh.size());
    const auto prices = prices_of(asked, failed);
    {
      std::lock_guard<std::mutex> hold(log.lock);
      for (size_t i = 0; i < fresh.size(); i++) {
        if (log.epoch == epoch) log.prices[fresh[i].first] = prices[i];
        if (!failed[i].empty()) log.unpriced[fresh[i].second.op] = failed[i];
      }
    }
    for (size_t i = 0; i < fresh.size(); i++)
      if (!failed[i].empty()) warn_unpriced(fresh[i].second.op, failed[i]);
  }
}

inline EventTime event_time(uint32_t id) {
  py::gil_scoped_acquire acquire;
  settle();
  std::lock_guard<std::mutex> hold(the_log().lock);
  const auto& events = the_log().clock.events;
  const auto found = events.find(id);
  return found == events.end() ? EventTime{} : found->second;
}

inline std::vector<std::pair<std::string, double>> times(int device) {
  auto& log = the_log();
  std::lock_guard<std::mutex> hold(log.lock);
  const auto& d = log.clock.devices[device];
  return {{"now", d.last},           {"compute", d.compute}, {"copies", d.copies},
          {"assumed", d.assumed},    {"launches", double(d.launches)},
          {"host", log.clock.latest_host}};
}

inline py::list all_signatures() {
  settle();
  auto& log = the_log();
  std::vector<Signature> signatures;
  std::vector<Price> prices;
  std::vector<uint64_t> counts;
  std::map<std::string, Retired> retired;
  {
    std::lock_guard<std::mutex> hold(log.lock);
    signatures = log.signatures, prices = log.prices, counts = log.counts, retired = log.retired;
  }
  py::list out;
  for (size_t i = 0; i < signatures.size(); i++)
    out.append(py::make_tuple(described(signatures[i]), counts[i], prices[i].seconds, prices[i].assumed));
  for (const auto& [op, sum] : retired)
    out.append(py::make_tuple(described({op}), sum.count, sum.seconds / double(sum.count), sum.assumed / double(sum.count)));
  return out;
}

inline Tracer* start_tracer() {
  auto* tracer = new Tracer;
  tracer->limit = limits.spans;
  auto& log = the_log();
  std::lock_guard<std::mutex> hold(log.lock);
  tracer->first = log.walked + log.entries.size();  // earlier launches are not part of the trace
  log.clock.tracers.push_back(tracer);
  return tracer;
}
struct Traced {
  std::vector<Span> spans;
  std::vector<std::string> names;  // by signature
  uint64_t dropped = 0;
};
inline Traced stop_tracer(Tracer* tracer) {
  auto& log = the_log();
  Traced found;
  std::lock_guard<std::mutex> hold(log.lock);
  auto& all = log.clock.tracers;
  all.erase(std::remove(all.begin(), all.end(), tracer), all.end());
  found.spans = std::move(tracer->spans);
  found.dropped = tracer->dropped;
  for (const auto& s : log.signatures) found.names.push_back(s.op);
  delete tracer;
  return found;
}

inline Tracer* python_tracer = nullptr;

// Spans since tracing was switched on: operator, kind, device, stream, thread, start, end (simulated seconds); and the
// number of dropped ones.
inline py::tuple traced(bool on) {
  settle();
  Traced found;
  if (python_tracer) found = stop_tracer(std::exchange(python_tracer, nullptr));
  if (on) python_tracer = start_tracer();
  py::list out;
  for (const auto& s : found.spans)
    out.append(py::make_tuple(found.names[s.id], int(s.what), int(s.device), s.stream, int(s.thread), s.start, s.end));
  return py::make_tuple(out, found.dropped);
}

// Seconds to append a known launch, measured over `n` of them in a separate log.
inline double append_cost(int n) {
  auto log = std::make_unique<Log>();
  log->entries.reserve(limits.walk_at);
  const uint64_t hash = mixed(mixed(0, uint64_t(n)), reinterpret_cast<uintptr_t>(log.get()));
  auto once = [&] {
    launched(What::kernel, hash, 0, 0, [] { return Signature{"aten::mm"}; }, nullptr, *log);
  };
  once();
  log->prices[0] = {1e-6, 0, true, true};
  const auto began = std::chrono::steady_clock::now();
  for (int i = 0; i < n; i++) once();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count() / n;
}

inline void bind_log(py::module& m) {
  m.def("set_pricer", [](py::object f) { pricer = new py::object(std::move(f)); });
  m.def("settle", &settle);
  m.def("launches", [] {
    std::lock_guard<std::mutex> hold(the_log().lock);
    return the_log().total;
  });
  m.def("log_length", [] {
    std::lock_guard<std::mutex> hold(the_log().lock);
    return the_log().entries.size();
  });
  m.def("times", [](int64_t i) {
    const auto found = times(seen(i));
    return std::map<std::string, double>(found.begin(), found.end());
  });
  m.def("signatures", &all_signatures);  // every distinct launch: description, count, seconds, assumed seconds
  m.def("unpriced", [] {  // operators without a cost, and why
    std::lock_guard<std::mutex> hold(the_log().lock);
    return the_log().unpriced;
  });
  m.def("limits", [](size_t walk_at, size_t price_at, size_t signatures, size_t spans) {  // sets them; returns the previous ones
    TORCH_CHECK_VALUE(walk_at && (walk_at & (walk_at - 1)) == 0, "the first limit must be a power of 2, not ", walk_at);
    std::lock_guard<std::mutex> hold(the_log().lock);
    const auto old = std::exchange(limits, {walk_at, price_at, signatures, spans});
    return std::make_tuple(old.walk_at, old.price_at, old.signatures, old.spans);
  });
  m.def("set_blocking", [](bool on) {  // whether the host waits for every launch from here on
    settle();
    std::lock_guard<std::mutex> hold(the_log().lock);
    the_log().clock.blocking = on;
  });
  m.def("trace", &traced);
  m.def("append_cost", &append_cost);
  m.def("set_slow", [](int64_t device, float factor) {
    uint32_t bits;
    std::memcpy(&bits, &factor, sizeof bits);
    note(What::slow, seen(device), 0, bits);
  });
}

}  // namespace sdaa
