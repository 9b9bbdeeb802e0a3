#pragma once

// A functional model of one Ascend A2/A3 launch: what a program computes, and whether it would compute that on hardware
// that runs its pipes side by side. It knows nothing of time.
//
// Every instruction is carried out at once, in program order, by the thread of its core. Order is checked beside that:
// an instruction belongs to a pipe, pipes run independently, and only flags, barriers and the scalar unit's waiting
// order them. Each pipe has a vector clock; each 32-byte granule of memory remembers its last write and its reads
// since. Two accesses to a granule, one of them a write, that no chain of synchronisation orders, are a race.
// Instructions of the same pipe count as unordered too until a barrier of that pipe. Blocks of a launch are never
// ordered.
//
// Also reported: accesses outside a buffer or outside global memory the caller registered, unaligned addresses, wrong
// repeat counts, waits for flags nobody set, flags set twice, flags left over. Bytes are counted by pipe.

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <source_location>
#include <string>
#include <unordered_map>
#include <vector>

namespace simulator {

enum Pipe : int { kS, kV, kM, kMTE1, kMTE2, kMTE3, kFIX, kPipes };
inline constexpr const char* kPipeNames[kPipes] = {"S", "V", "M", "MTE1", "MTE2", "MTE3", "FIX"};

inline constexpr int kCores = 3;  // of a block: one cube core, then two vector cores
inline constexpr int kActors = kCores * kPipes;
inline constexpr int kEvents = 8;       // hardware events between two pipes
inline constexpr int kCrossFlags = 16;  // flags between cores
inline constexpr size_t kGranule = 32;  // bytes, as many as Access::bytes has bits

using Clock = std::array<uint32_t, kActors>;

struct Access {
  int actor;
  int block;
  uint32_t time;
  uint32_t bytes;  // bit i: byte i of the granule
  const char* instruction;
};

// The last write of every byte, and the reads since.
struct Granule {
  std::vector<Access> writes;
  std::vector<Access> reads;
};

// Granules of global memory, allocated as they are touched.
class Shadow {
 public:
  Granule& at(size_t granule) {
    auto& page = pages_[granule / kPage];
    if (!page) page = std::make_unique<std::array<Granule, kPage>>();
    return (*page)[granule % kPage];
  }
  void clear() { pages_.clear(); }

 private:
  static constexpr size_t kPage = 64;
  std::unordered_map<size_t, std::unique_ptr<std::array<Granule, kPage>>> pages_;
};

// One on-chip memory of a core. It starts as NaN in every floating point format.
struct Memory {
  Memory(const char* name, size_t capacity) : name(name), bytes(capacity, 0xff), granules(capacity / kGranule) {}
  Granule& at(size_t granule) { return granules[granule]; }
  const char* name;
  std::vector<uint8_t> bytes;
  std::vector<Granule> granules;
};

enum MemoryKind : int { kUB, kL1, kL0A, kL0B, kL0C, kMemories };
inline constexpr const char* kMemoryNames[kMemories] = {"UB", "L1", "L0A", "L0B", "L0C"};
inline constexpr size_t kCapacity[kMemories] = {192 << 10, 512 << 10, 64 << 10, 64 << 10, 128 << 10};

struct Block;

struct Core {
  Core(Block& block, int number);
  int actor(Pipe pipe) const { return number * kPipes + pipe; }

  Block& block;
  int block_number;
  int number;
  std::array<Clock, kPipes> known{};      // what each pipe is ordered after
  std::array<uint32_t, kPipes> issued{};  // instructions given to each pipe
  std::map<std::array<int, 3>, std::vector<Clock>> events;
  std::array<std::unique_ptr<Memory>, kMemories> memories;
};

Core& core();  // of the calling thread

void report(const std::string& text);
void count_bytes(Pipe pipe, size_t bytes);

// c [m, n] += a [m, k] b [k, n], row-major.
void multiply_add(const float* a, const float* b, float* c, int64_t m, int64_t n, int64_t k);

// One instruction: what it touches is checked when it is constructed and when it touches.
class Instruction {
 public:
  Instruction(Pipe pipe, const char* name);
  void read(Memory& memory, size_t offset, size_t bytes) { touch(memory, offset, bytes, false); }
  void write(Memory& memory, size_t offset, size_t bytes) { touch(memory, offset, bytes, true); }
  // False, and reported, if the range is not inside registered memory.
  bool read_global(const void* pointer, size_t bytes) { return touch_global(pointer, bytes, nullptr); }
  // `data`: what is about to be stored; storing the bytes that are there already is no race between writes.
  bool write_global(void* pointer, const void* data, size_t bytes) { return touch_global(pointer, bytes, data); }

 private:
  void touch(Memory& memory, size_t offset, size_t bytes, bool writes);
  bool touch_global(const void* pointer, size_t bytes, const void* data);
  template <class Granules>
  void check(Granules& granules, size_t offset, size_t bytes, bool writes, bool same_bytes, const char* memory);
  void check(Granule& granule, uint32_t bytes, bool writes, bool same_bytes, const char* memory);
  bool ordered(const Access& earlier) const;

  Core& core_;
  Pipe pipe_;
  const char* name_;
};

// Whether a test asked to run without the synchronisation at this line of a lowered source.
bool left_out(const std::source_location& where);

void set_event(Pipe producer, Pipe consumer, int event);
void wait_event(Pipe producer, Pipe consumer, int event);
void barrier(Pipe pipe);
void barrier_all();
void set_cross_flag(Pipe pipe, int flag);
void wait_cross_flag(int flag);

void launch(uint32_t blocks, const std::function<void()>& program);

}  // namespace simulator
