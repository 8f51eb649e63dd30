// Work of the host while torch.sdaa.profile is active: operators, backward nodes, calls of the device's runtime, launches.
//
// Times are those of this machine's steady clock, like Python's time.perf_counter_ns. A launch is matched to the device's spans
// by its index in the log. Without a profile the cost is one check of a flag.
#pragma once
#include <ATen/record_function.h>
#include "clock.h"
#include "common.h"
#include "faults.h"

namespace sdaa {

inline uint16_t thread_number();
inline bool interpreter_is_up();

enum class Doing : uint8_t { op, backward, range, runtime, launch };

struct HostSpan {
  int64_t begin = 0, end = 0;  // nanoseconds; an end of 0: it has not ended
  int64_t sequence = -1;       // autograd's number: of the node an operator creates, of the node that is run
  uint64_t maker = 0;          // PyTorch's number of the thread that created the node
  uint64_t at = 0;             // of a launch: its number in the log
  uint32_t name = 0;
  int32_t line = -1, module = -1;
  uint16_t thread = 0;
  Doing doing = Doing::op;
};

struct HostProfile {
  std::mutex lock;
  uint32_t session = 0;
  size_t limit = 0;
  uint64_t dropped = 0;
  std::vector<HostSpan> spans;
  std::vector<std::string> names;
  std::unordered_map<std::string, uint32_t> known;
  // The following is protected by the interpreter's lock.
  std::vector<std::string> skipped;  // prefixes of files that are not user code: PyTorch's, this package's, Python's
  std::unordered_map<PyObject*, bool> own;
  std::map<std::pair<PyObject*, int>, int32_t> numbers;
  std::vector<std::pair<PyObject*, int>> lines;  // code objects are held until the next profile
};
inline HostProfile& host_profile() {
  static auto* one = new HostProfile;  // never destroyed: autograd's threads outlive main
  return *one;
}
inline std::atomic<bool> host_is_watched{false};
inline thread_local int op_depth = 0, runtime_depth = 0;
inline thread_local int32_t module_here = -1;

inline int64_t steady_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

inline bool is_own(HostProfile& all, PyObject* code) {
  const auto found = all.own.find(code);
  if (found != all.own.end()) return found->second;
  const char* file = PyUnicode_AsUTF8(reinterpret_cast<PyCodeObject*>(code)->co_filename);
  if (!file) PyErr_Clear();
  bool own = file && file[0] != '<';
  for (const auto& start : all.skipped) own = own && std::strncmp(file, start.c_str(), start.size()) != 0;
  Py_INCREF(code);
  return all.own[code] = own;
}

// The number of the innermost line of the script, or of a library other than PyTorch; -1 without one. A thread of
// autograd has one if it runs a backward or a hook written in Python.
inline int32_t line_here() {
  if (!interpreter_is_up() || !PyGILState_GetThisThreadState()) return -1;
  py::gil_scoped_acquire acquire;
  auto& all = host_profile();
  PyFrameObject* frame = PyThreadState_GetFrame(PyThreadState_Get());
  int32_t number = -1;
  while (frame && number < 0) {
    auto* code = reinterpret_cast<PyObject*>(PyFrame_GetCode(frame));
    if (is_own(all, code)) {
      const std::pair<PyObject*, int> place{code, PyFrame_GetLineNumber(frame)};
      const auto [found, fresh] = all.numbers.try_emplace(place, int32_t(all.lines.size()));
      if (fresh) all.lines.push_back(place);
      number = found->second;
    }
    Py_DECREF(code);
    auto* back = PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = back;
  }
  Py_XDECREF(frame);
  return number;
}

struct Opened {  // a span that has begun
  uint32_t index = 0, session = 0;
};
inline std::optional<Opened> begin_span(Doing doing, const char* name, int32_t line, int64_t sequence = -1, uint64_t maker = 0) {
  auto& all = host_profile();
  const auto thread = thread_number();
  std::lock_guard<std::mutex> hold(all.lock);
  if (!host_is_watched) return std::nullopt;
  if (all.spans.size() >= all.limit) {
    all.dropped++;
    return std::nullopt;
  }
  const auto [found, fresh] = all.known.try_emplace(name, uint32_t(all.names.size()));
  if (fresh) all.names.emplace_back(name);
  all.spans.push_back({steady_ns(), 0, sequence, maker, 0, found->second, line, module_here, thread, doing});
  return Opened{uint32_t(all.spans.size() - 1), all.session};
}
inline void end_span(const Opened& opened, uint64_t at = 0) {
  auto& all = host_profile();
  std::lock_guard<std::mutex> hold(all.lock);
  if (opened.session != all.session || opened.index >= all.spans.size()) return;
  all.spans[opened.index].end = steady_ns();
  all.spans[opened.index].at = at;
}

// A call of the device's runtime, or the launch in it. Of nested calls the outermost counts.
struct Within {
  Within(Doing doing, const char* name) {
    if (!host_is_watched.load(std::memory_order_relaxed) || forked) return;
    runtime = doing == Doing::runtime;
    if (!runtime || !runtime_depth) opened = begin_span(doing, name, op_depth || !runtime ? -1 : line_here());
    runtime_depth += runtime;
  }
  ~Within() {
    runtime_depth -= runtime;
    if (opened) end_span(*opened, at);
  }
  Within(const Within&) = delete;
  bool runtime = false;
  uint64_t at = 0;
  std::optional<Opened> opened;
};

struct OpenedOp final : at::ObserverContext {
  std::optional<Opened> opened;
  bool counted = false;
};
inline constexpr std::string_view kEvaluates = "autograd::engine::evaluate_function: ";

inline std::unique_ptr<at::ObserverContext> op_begins(const at::RecordFunction& fn) {
  if (runtime_depth || forked) return nullptr;  // the host's operators that compute a device's values; a worker's
  const auto scope = fn.scope();
  const auto doing = scope == at::RecordScope::FUNCTION            ? Doing::op
                     : scope == at::RecordScope::BACKWARD_FUNCTION ? Doing::backward
                                                                   : Doing::range;
  auto made = std::make_unique<OpenedOp>();
  // Operators inside PyTorch's operators and inside autograd's nodes are recorded separately.
  made->counted = doing == Doing::op && std::strncmp(fn.name(), kEvaluates.data(), kEvaluates.size()) != 0;
  const int32_t line = made->counted && op_depth == 0 ? line_here() : -1;
  op_depth += made->counted;
  const auto maker = doing == Doing::backward ? fn.forwardThreadId() : at::RecordFunction::currentThreadId();
  made->opened = begin_span(doing, fn.name(), line, fn.seqNr(), maker);
  return made;
}
inline void op_ends(const at::RecordFunction&, at::ObserverContext* context) {
  auto* made = static_cast<OpenedOp*>(context);
  if (!made) return;
  op_depth -= made->counted && op_depth > 0;
  if (made->opened) end_span(*made->opened);
}

inline at::CallbackHandle host_callback = 0;

inline void watch_host(std::vector<std::string> skipped, size_t limit) {
  TORCH_CHECK(!host_is_watched,
              "a profile is active; end it before another one (under teco train profile, which profiles the whole "
              "script, remove torch.sdaa.profile from it)");
  auto& all = host_profile();
  for (const auto& [code, own] : all.own) Py_DECREF(code);
  all.own.clear();
  all.numbers.clear();
  all.lines.clear();
  all.skipped = std::move(skipped);
  {
    std::lock_guard<std::mutex> hold(all.lock);
    all.session++;
    all.spans.clear();
    all.names.clear();
    all.known.clear();
    all.dropped = 0;
    all.limit = limit;
    host_is_watched = true;
  }
  op_depth = 0;
  host_callback = at::addGlobalCallback(at::RecordFunctionCallback(op_begins, op_ends)
                                            .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION,
                                                     at::RecordScope::USER_SCOPE}));
}

// Stops recording; returns the spans, the names and lines that they refer to, and the number of dropped spans.
inline py::dict watched_host() {
  TORCH_CHECK(host_is_watched, "no profile is active");
  at::removeCallback(host_callback);
  auto& all = host_profile();
  std::vector<HostSpan> spans;
  std::vector<std::string> names;
  uint64_t dropped;
  const int64_t now = steady_ns();
  {
    std::lock_guard<std::mutex> hold(all.lock);
    host_is_watched = false;
    spans.swap(all.spans);
    names = all.names;
    dropped = all.dropped;
  }
  py::list host, lines;
  for (const auto& s : spans)
    host.append(py::make_tuple(int(s.doing), s.name, int(s.thread), s.begin, s.end ? s.end : now, s.sequence, s.maker, s.line, s.module,
                               s.at));
  for (const auto& [code, line] : all.lines) {
    const auto* c = reinterpret_cast<PyCodeObject*>(code);
    lines.append(py::make_tuple(py::handle(c->co_filename), py::handle(c->co_name), line));
  }
  py::dict found;
  found["host"] = host;
  found["names"] = names;
  found["lines"] = lines;
  found["dropped"] = dropped;
  found["thread"] = int(thread_number());
  return found;
}

inline void bind_host_spans(py::module& m) {
  m.def("watch_host", &watch_host);
  m.def("watched_host", &watched_host);
  m.def("module_here", [](int32_t number) { return std::exchange(module_here, number); });  // returns the previous one
}

}  // namespace sdaa
