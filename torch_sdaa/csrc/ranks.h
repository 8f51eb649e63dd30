// The ranks of a group, which of them is lost, and the error in one line instead of gloo's pages.
#pragma once
#include "common.h"

#if __has_include(<torch/csrc/distributed/c10d/Backend.hpp>)
#define SDAA_COLLECTIVES
#include <c10/util/Flags.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>
#include <condition_variable>
#include <fstream>
#include <functional>
#include <sstream>
#include <thread>

C10_DECLARE_int(caffe2_log_level);

namespace sdaa {

// Suppresses torch's warnings, with their C++ stack, while accessing a store whose host process may have ended.
struct Quietly {
  Quietly() { FLAGS_caffe2_log_level = 3; }
  ~Quietly() { FLAGS_caffe2_log_level = was; }
  const int was = FLAGS_caffe2_log_level;
};

// When a process started, in the kernel's ticks; "" if it has ended (including zombies).
inline std::string began_at(int64_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  const auto name_ends = text.rfind(')');
  if (name_ends == std::string::npos) return "";
  std::istringstream rest(text.substr(name_ends + 1));
  std::string field;
  rest >> field;
  if (field == "Z" || field == "X") return "";
  for (int i = 4; i <= 22; i++) rest >> field;
  return field;
}

struct Member {
  int number;  // in the world
  std::string host;
  int64_t pid;
  std::string began;
};

[[noreturn]] inline void throw_lost(const std::string& text) { C10_THROW_ERROR(DistBackendError, text); }

struct Ranks {
  Ranks(int rank, c10::intrusive_ptr<c10d::Store> store, std::vector<std::string> devices)
      : rank(rank), store(std::move(store)), devices(std::move(devices)) {}

  const int rank;  // this process's, in the group
  const c10::intrusive_ptr<c10d::Store> store;
  const std::vector<std::string> devices;  // of this process, in the host's numbering
  std::vector<Member> members;
  bool store_outlives = false;  // no rank holds the store: a launcher does
  std::atomic<bool> failed{false};

  std::string me() const { return "tccl: rank " + std::to_string(members.at(size_t(rank)).number); }

  // Two ranks on one device are an error, as with NCCL: raised by the second.
  void claim(DeviceIndex device) {
    std::lock_guard<std::mutex> hold(lock_);
    if (claimed_ >> device & 1) return;
    const auto key = "tccl/device/" + members.at(size_t(rank)).host + "/" + devices.at(size_t(device));
    const auto mine = std::to_string(members[size_t(rank)].number);
    std::string owner = mine;
    if (store->add(key, 1) == 1) {
      store->set(key + "/rank", std::vector<uint8_t>(mine.begin(), mine.end()));
    } else {
      const auto found = store->get(key + "/rank");
      owner.assign(found.begin(), found.end());
    }
    TORCH_CHECK_VALUE(owner == mine, me(), " uses sdaa:", int(device), ", which is rank ", owner,
                      "'s: each rank needs its own device; call torch.sdaa.set_device(int(os.environ['LOCAL_RANK'])) before the first "
                      "collective, and put model and batches there");
    claimed_ |= uint64_t(1) << device;
  }

  std::string late(const char* name, double seconds) const {
    std::ostringstream text;
    text << me() << " waited " << seconds << " s in " << name << " for the others: a rank is slow, hangs, or does not make this call; "
         << "timeout= (of init_process_group, new_group or wait) sets the limit";
    return text.str();
  }

  // The same error in one line, reported once to all: a rank that lost another one for this reason learns which was first.
  std::exception_ptr explained(const char* name, const std::exception_ptr& error) {
    std::string text;
    try {
      std::rethrow_exception(error);
    } catch (const c10::Error& e) {
      text = e.what_without_backtrace();
    } catch (const std::exception& e) {
      text = e.what();
    } catch (...) {
      return error;
    }
    if (!is_loss(text))  // only this call was invalid: the group continues
      return std::make_exception_ptr(
          c10::DistBackendError({name, __FILE__, uint32_t(__LINE__)}, me() + ": " + name + ": " + first_line(text)));
    std::string first;
    {
      std::lock_guard<std::mutex> hold(lock_);
      if (said_.empty()) said_ = cause(name, text);
      first = said_;
    }
    failed = true;
    leave();
    return std::make_exception_ptr(c10::DistBackendError({name, __FILE__, uint32_t(__LINE__)}, first));
  }

  static bool is_loss(const std::string& text) {
    for (const char* sign : {"losed", "peer", "roken pipe", "imed out", "imeout", "onnection"})
      if (text.find(sign) != std::string::npos) return true;
    return false;
  }
 private:
  bool ended(const Member& m) const {
    return m.host == members[size_t(rank)].host && !m.began.empty() && began_at(m.pid) != m.began;
  }

  // Ranks on this host whose process has ended.
  std::vector<const Member*> gone() const {
    std::vector<const Member*> found;
    for (const auto& m : members)
      if (ended(m)) found.push_back(&m);
    return found;
  }

  // Reports that this rank knows the lost rank. The others read it in the store of rank 0, which waits for them.
  void leave() const {
    const auto key = [](const Member& m) { return "tccl/knows/" + std::to_string(m.number); };
    const auto& own = members.at(size_t(rank));
    try {
      Quietly quiet;
      store->set(key(own), std::vector<uint8_t>{1});
      if (own.number != 0 || store_outlives) return;
      const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(5);
      const auto waited_for = [&](const Member& m) { return !ended(m) && !store->check({key(m)}); };
      while (std::any_of(members.begin(), members.end(), waited_for) && std::chrono::steady_clock::now() < until)
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    } catch (const std::exception&) {  // the rank that held the store is gone
    }
  }

  std::string cause(const char* name, const std::string& text) const {
    const bool slow = text.find("imed out") != std::string::npos || text.find("imeout") != std::string::npos;
    auto dead = gone();
    for (int i = 0; i < 30 && dead.empty() && !slow; i++) {  // its connection closes a little before the process has ended
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      dead = gone();
    }
    const auto lost = first_lost(dead);
    const std::string fix = "; see its last output, and start all ranks again from the last checkpoint";
    if (!lost.empty()) return me() + " lost " + lost + " in " + name + ": that process has ended" + fix;
    if (slow) {
      std::ostringstream waited;
      waited << me() << " waited too long for the others in " << name << ": a rank hangs, or does not make this call; "
             << "timeout= of init_process_group sets the limit (" << first_line(text) << ")";
      return waited.str();
    }
    return me() + " lost its connection in " + name + " (" + first_line(text) + "): a rank on another host has ended, or the network failed; " +
           "see the last output of the other ranks";
  }

  // Names the rank that was lost first: from the reports of others, else from the processes that have ended.
  std::string first_lost(const std::vector<const Member*>& dead) const {
    const auto zeroth = [](const Member* m) { return m->number == 0; };
    const bool asks = store_outlives || std::none_of(dead.begin(), dead.end(), zeroth);
    std::string names;
    for (const auto* m : dead)
      names += (names.empty() ? "rank " : ", rank ") + std::to_string(m->number) + " (process " + std::to_string(m->pid) + ")";
    if (asks) try {
        Quietly quiet;
        const std::string key = "tccl/lost";
        if (store->check({key})) {
          const auto found = store->get(key);
          return std::string(found.begin(), found.end());
        }
        if (!names.empty()) store->set(key, std::vector<uint8_t>(names.begin(), names.end()));
      } catch (const std::exception&) {  // the rank that held the store is gone too
      }
    return names;
  }

  static std::string first_line(std::string text) {
    text = text.substr(0, text.find('\n'));
    if (const auto ends = text.find("] "); text.rfind("[", 0) == 0 && ends != std::string::npos) text = text.substr(ends + 2);
    return text.substr(0, 200);
  }

  std::mutex lock_;
  uint64_t claimed_ = 0;
  std::string said_;
};

}  // namespace sdaa
#endif
