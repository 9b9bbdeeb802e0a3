#include "machine.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <set>
#include <string_view>
#include <thread>

namespace simulator {

struct Block {
  explicit Block(int number) : number(number) {}

  int number;
  std::mutex mutex;
  std::condition_variable changed;
  // [from][to][flag]: what was known when the flag was set.
  std::vector<Clock> flags[kCores][kCores][kCrossFlags];
  int running = kCores;  // cores that have not ended
  int waiting = 0;       // of them, those that found their flag missing since the last one was set
  long sets = 0;

  // Nobody is left to set what the others wait for.
  bool deadlocked() const { return waiting > 0 && waiting >= running; }
};

namespace {

constexpr int kMaxPendingCrossFlags = 15;

struct GlobalMemory {
  const uint8_t* begin;
  size_t bytes;
  std::string name;
  Shadow shadow;
};

struct Launches {
  std::mutex mutex;
  std::map<std::string, long> reports;
  std::array<std::atomic<uint64_t>, kPipes> bytes{};
  std::array<std::atomic<uint64_t>, kPipes> instructions{};
  std::map<const uint8_t*, GlobalMemory> memories;
  long launches = 0;
  std::string left_out_file;
  std::set<uint32_t> left_out_lines;
};

Launches& state() {
  static Launches launches;
  return launches;
}

struct Deadlock {};

thread_local Core* current = nullptr;

void merge(Clock& into, const Clock& from) {
  for (int i = 0; i < kActors; ++i) into[i] = std::max(into[i], from[i]);
}

std::string describe(const char* instruction, int actor) {
  const int number = actor / kPipes;
  return std::string(instruction) + " (" + (number == 0 ? "cube" : "vector " + std::to_string(number - 1)) + ", " +
         kPipeNames[actor % kPipes] + ")";
}

bool exists(int core, Pipe pipe) {
  return core == 0 ? pipe != kV && pipe != kMTE3 : pipe != kM && pipe != kMTE1 && pipe != kFIX;
}

void check_exists(const Core& core, Pipe pipe, const std::string& what) {
  if (!exists(core.number, pipe))
    report("core: " + what + " on a " + (core.number == 0 ? "cube" : "vector") + " core, which has no " +
           kPipeNames[pipe]);
}

// What `pipe` knows once everything it was given has been carried out.
Clock finished(const Core& core, Pipe pipe) {
  Clock clock = core.known[pipe];
  clock[core.actor(pipe)] = core.issued[pipe];
  return clock;
}

}  // namespace

Core::Core(Block& block, int number) : block(block), block_number(block.number), number(number) {
  for (int kind = 0; kind < kMemories; ++kind)
    memories[kind] = std::make_unique<Memory>(kMemoryNames[kind], kCapacity[kind]);
}

Core& core() { return *current; }

void report(const std::string& text) {
  const std::lock_guard lock(state().mutex);
  ++state().reports[text];
}

bool left_out(const std::source_location& where) {
  const Launches& all = state();
  return all.left_out_lines.count(where.line()) != 0 &&
         std::string_view(where.file_name()).ends_with(all.left_out_file);
}

void count_bytes(Pipe pipe, size_t bytes) { state().bytes[pipe] += bytes; }

void multiply_add(const float* a, const float* b, float* c, int64_t m, int64_t n, int64_t k) {
  for (int64_t i = 0; i < m; ++i)
    for (int64_t l = 0; l < k; ++l)
      for (int64_t j = 0; j < n; ++j) c[i * n + j] += a[i * k + l] * b[l * n + j];
}

Instruction::Instruction(Pipe pipe, const char* name) : core_(core()), pipe_(pipe), name_(name) {
  check_exists(core_, pipe, name);
  ++core_.issued[pipe];
  // The scalar unit issues in order and waits for its own loads, so it is never overtaken by what it issues.
  core_.known[pipe][core_.actor(kS)] = core_.issued[kS];
  merge(core_.known[pipe], core_.known[kS]);
  ++state().instructions[pipe];
}

bool Instruction::ordered(const Access& earlier) const {
  if (earlier.block != core_.block_number) return false;
  if (earlier.actor == core_.actor(pipe_) && (pipe_ == kS || earlier.time == core_.issued[pipe_])) return true;
  return earlier.time <= core_.known[pipe_][earlier.actor];
}

template <class Granules>
void Instruction::check(Granules& granules, size_t offset, size_t bytes, bool writes, bool same_bytes,
                        const char* memory) {
  const size_t end = offset + bytes;
  for (size_t granule = offset / kGranule; granule * kGranule < end; ++granule) {
    const size_t first = std::max(offset, granule * kGranule) % kGranule;
    const size_t last = std::min(end, (granule + 1) * kGranule) - granule * kGranule;
    check(granules.at(granule), (~0u >> (kGranule - (last - first))) << first, writes, same_bytes, memory);
  }
}

void Instruction::check(Granule& granule, uint32_t bytes, bool writes, bool same_bytes, const char* memory) {
  const int actor = core_.actor(pipe_);
  const auto conflict = [&](const char* kind, const Access& earlier) {
    report(std::string("race: ") + kind + " in " + memory + ": " + describe(name_, actor) + " is not ordered after " +
           describe(earlier.instruction, earlier.actor) +
           (earlier.block == core_.block_number ? "" : " of another block"));
  };
  const Access access{actor, core_.block_number, core_.issued[pipe_], bytes, name_};
  for (const Access& write : granule.writes)
    if ((write.bytes & bytes) && !ordered(write) && !(writes && same_bytes))
      conflict(writes ? "write after write" : "read after write", write);
  if (!writes) {
    for (Access& read : granule.reads)
      if (read.actor == actor && read.block == access.block && read.bytes == bytes) {
        read = access;
        return;
      }
    granule.reads.push_back(access);
    return;
  }
  for (const Access& read : granule.reads)
    if ((read.bytes & bytes) && !ordered(read)) conflict("write after read", read);
  if (bytes == ~0u) {
    granule.reads.clear();
    granule.writes.assign(1, access);
    return;
  }
  for (auto* earlier : {&granule.writes, &granule.reads}) {
    for (Access& covered : *earlier) covered.bytes &= ~bytes;
    std::erase_if(*earlier, [](const Access& covered) { return covered.bytes == 0; });
  }
  granule.writes.push_back(access);
}

void Instruction::touch(Memory& memory, size_t offset, size_t bytes, bool writes) {
  check(memory, offset, bytes, writes, false, memory.name);
}

bool Instruction::touch_global(const void* pointer, size_t bytes, const void* data) {
  if (bytes == 0) return true;
  const auto* begin = static_cast<const uint8_t*>(pointer);
  auto& memories = state().memories;
  auto found = memories.upper_bound(begin);
  if (found == memories.begin() || (--found, begin + bytes > found->second.begin + found->second.bytes)) {
    report(std::string("bounds: ") + describe(name_, core_.actor(pipe_)) + (data ? " writes " : " reads ") +
           "outside global memory");
    return false;
  }
  GlobalMemory& memory = found->second;
  const std::string name = "global memory of " + memory.name;
  const bool same_bytes = data && std::memcmp(pointer, data, bytes) == 0;
  static std::mutex shadows;  // cores of one block share global memory
  const std::lock_guard lock(shadows);
  check(memory.shadow, begin - memory.begin, bytes, data != nullptr, same_bytes, name.c_str());
  return true;
}

void set_event(Pipe producer, Pipe consumer, int event) {
  if (event < 0 || event >= kEvents) report("flag: event " + std::to_string(event) + " does not exist");
  check_exists(core(), producer, "flag set");
  check_exists(core(), consumer, "flag set");
  auto& pending = core().events[{producer, consumer, event}];
  if (!pending.empty())
    report(std::string("flag: ") + kPipeNames[producer] + "_" + kPipeNames[consumer] + " " + std::to_string(event) +
           " set again before it was waited for");
  merge(core().known[producer], core().known[kS]);
  pending.push_back(finished(core(), producer));
}

void wait_event(Pipe producer, Pipe consumer, int event) {
  auto& pending = core().events[{producer, consumer, event}];
  if (pending.empty()) {
    report(std::string("flag: ") + kPipeNames[producer] + "_" + kPipeNames[consumer] + " " + std::to_string(event) +
           " waited for but not set: hangs");
    return;
  }
  merge(core().known[consumer], pending.front());
  pending.erase(pending.begin());
}

void barrier(Pipe pipe) { core().known[pipe][core().actor(pipe)] = core().issued[pipe]; }

void barrier_all() {
  Clock all{};
  for (int pipe = 0; pipe < kPipes; ++pipe) merge(all, finished(core(), static_cast<Pipe>(pipe)));
  core().known.fill(all);
}

void set_cross_flag(Pipe pipe, int flag) {
  Block& block = core().block;
  const std::lock_guard lock(block.mutex);
  const int from = core().number;
  for (int to = 0; to < kCores; ++to) {
    if ((from == 0) == (to == 0)) continue;
    auto& pending = block.flags[from][to][flag];
    pending.push_back(finished(core(), pipe));
    if (pending.size() > kMaxPendingCrossFlags) report("flag: cross-core flag " + std::to_string(flag) + " overflows");
  }
  ++block.sets;
  block.waiting = 0;
  block.changed.notify_all();
}

void wait_cross_flag(int flag) {
  Block& block = core().block;
  std::unique_lock lock(block.mutex);
  const int to = core().number;
  const auto arrived = [&] {
    for (int from = 0; from < kCores; ++from)
      if ((from == 0) != (to == 0) && block.flags[from][to][flag].empty()) return false;
    return true;
  };
  while (!arrived()) {
    const long sets = block.sets;
    ++block.waiting;
    if (block.deadlocked()) block.changed.notify_all();
    block.changed.wait(lock, [&] { return block.sets != sets || block.deadlocked(); });
    if (block.sets != sets) continue;
    report("flag: cross-core flag " + std::to_string(flag) + " waited for but not set: hangs");
    throw Deadlock{};
  }
  for (int from = 0; from < kCores; ++from) {
    if ((from == 0) == (to == 0)) continue;
    auto& pending = block.flags[from][to][flag];
    for (Clock& known : core().known) merge(known, pending.front());
    pending.erase(pending.begin());
  }
}

void launch(uint32_t blocks, const std::function<void()>& program) {
  if (blocks == 0 || blocks > 65535)
    report("launch: the number of blocks must be 1..65535; got " + std::to_string(blocks));
  for (auto& [begin, memory] : state().memories) memory.shadow.clear();
  ++state().launches;
  for (uint32_t number = 0; number < blocks; ++number) {
    Block block(static_cast<int>(number));
    std::vector<std::thread> threads;
    for (int index = 0; index < kCores; ++index)
      threads.emplace_back([&block, &program, index] {
        Core self(block, index);
        current = &self;
        try {
          program();
        } catch (const Deadlock&) {
        }
        for (const auto& [event, pending] : self.events)
          if (!pending.empty())
            report(std::string("flag: ") + kPipeNames[event[0]] + "_" + kPipeNames[event[1]] + " " +
                   std::to_string(event[2]) + " left set at the end");
        current = nullptr;
        const std::lock_guard lock(block.mutex);
        --block.running;
        block.changed.notify_all();
      });
    for (std::thread& thread : threads) thread.join();
    for (auto& from : block.flags)
      for (auto& to : from)
        for (int flag = 0; flag < kCrossFlags; ++flag)
          if (!to[flag].empty()) report("flag: cross-core flag " + std::to_string(flag) + " left set at the end");
  }
}

}  // namespace simulator

// --- for the tests --------------------------------------------------------------------------------------------------

extern "C" {

void simulator_reset() {
  auto& all = simulator::state();
  all.reports.clear();
  all.memories.clear();
  for (auto& count : all.bytes) count = 0;
  for (auto& count : all.instructions) count = 0;
  all.launches = 0;
}

void simulator_register(const void* begin, size_t bytes, const char* name) {
  const auto* address = static_cast<const uint8_t*>(begin);
  auto& memory = simulator::state().memories[address];
  memory.begin = address;
  memory.bytes = std::max(memory.bytes, bytes);
  memory.name = name;
}

// Until the next call: `file` runs without the synchronisation at these lines.
void simulator_leave_out(const char* file, const uint32_t* lines, size_t count) {
  simulator::state().left_out_file = file;
  simulator::state().left_out_lines = std::set<uint32_t>(lines, lines + count);
}

long simulator_launches() { return simulator::state().launches; }
uint64_t simulator_bytes(int pipe) { return simulator::state().bytes[pipe]; }
uint64_t simulator_instructions(int pipe) { return simulator::state().instructions[pipe]; }

// One report a line, "count text". Returns the length needed.
size_t simulator_reports(char* text, size_t capacity) {
  std::string all;
  for (const auto& [report, count] : simulator::state().reports) all += std::to_string(count) + " " + report + "\n";
  if (capacity > 0) {
    const size_t length = std::min(all.size(), capacity - 1);
    std::memcpy(text, all.data(), length);
    text[length] = 0;
  }
  return all.size() + 1;
}
}

// Launch functions are in this library.
namespace gdn::ascend {
void* device_function(const char* name) {
  Dl_info self;
  dladdr(reinterpret_cast<void*>(&device_function), &self);
  static void* const library = dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  return dlsym(library, name);
}
}  // namespace gdn::ascend
