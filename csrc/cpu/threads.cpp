// A small persistent thread pool and the scratch memory of its threads.
//
// A job is a function, a context and a task counter. `state_` holds the "open" flag and the number of workers inside;
// a worker enters only while the flag is set, the caller clears it after its own share and waits for those inside. A
// worker that sleeps through a job is therefore never waited for. Workers spin briefly before they sleep in the
// kernel, because decode calls follow each other closely. The pool is created on first use and again after fork; it is
// never destroyed, so that no thread outlives what it uses at exit.
#include "cpu/threads.hpp"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>

namespace gdn::cpu {
namespace {

constexpr uint32_t kOpen = 1u << 31;
constexpr int kSpinsBeforeSleep = 1000;
constexpr int kSpinsBeforeYield = 4000;
constexpr int kMaxThreads = 1024;
constexpr size_t kAlignment = 64;

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

int default_num_threads() {
  if (const char* text = std::getenv("SGLANG_GDN_NUM_THREADS")) {
    const int count = std::atoi(text);
    if (count >= 1) return count < kMaxThreads ? count : kMaxThreads;
  }
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  if (sched_getaffinity(0, sizeof cpus, &cpus) == 0) return CPU_COUNT(&cpus);
  const unsigned count = std::thread::hardware_concurrency();
  return count == 0 ? 1 : static_cast<int>(count);
}

// Results below the normal range become zero, and such operands count as zero, for the life of this object. States that
// decay away pass through that range, where many CPUs take a hundred times as long.
class FlushSubnormals {
 public:
#if defined(__x86_64__)
  FlushSubnormals() : saved_(__builtin_ia32_stmxcsr()) { __builtin_ia32_ldmxcsr(saved_ | kFlush); }
  ~FlushSubnormals() { __builtin_ia32_ldmxcsr(saved_); }

 private:
  static constexpr unsigned kFlush = 0x8040;  // FTZ and DAZ
  unsigned saved_;
#else
  FlushSubnormals() {}
  ~FlushSubnormals() {}
#endif
  FlushSubnormals(const FlushSubnormals&) = delete;
  FlushSubnormals& operator=(const FlushSubnormals&) = delete;
};

class Pool {
 public:
  void run(int threads, int64_t tasks, TaskFunction function, const void* context) {
    while (workers_ < threads - 1 && start_worker(workers_)) ++workers_;
    function_ = function;
    context_ = context;
    tasks_ = tasks;
    active_workers_ = threads - 1;
    next_.store(0, std::memory_order_relaxed);
    state_.fetch_or(kOpen, std::memory_order_release);
    epoch_.fetch_add(1, std::memory_order_release);
    epoch_.notify_all();
    work();
    state_.fetch_and(~kOpen, std::memory_order_acq_rel);
    for (int spins = 0; state_.load(std::memory_order_acquire) != 0; ++spins) {
      if (spins < kSpinsBeforeYield) {
        pause();
      } else {
        sched_yield();
      }
    }
  }

  bool try_acquire() { return !busy_.test_and_set(std::memory_order_acquire); }
  void release() { busy_.clear(std::memory_order_release); }

 private:
  bool start_worker(int index) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);  // signals belong to the threads of the program
    bool started = true;
    try {
      std::thread([this, index] { serve(index); }).detach();
    } catch (const std::system_error&) {
      started = false;
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return started;
  }

  void work() {
    for (int64_t task; (task = next_.fetch_add(1, std::memory_order_relaxed)) < tasks_;) function_(context_, task);
  }

  void serve(int index) {
    const FlushSubnormals flush;
    for (uint32_t seen = 0;;) {
      for (int spins = 0; epoch_.load(std::memory_order_relaxed) == seen && spins < kSpinsBeforeSleep; ++spins) pause();
      epoch_.wait(seen, std::memory_order_acquire);
      seen = epoch_.load(std::memory_order_acquire);
      const uint32_t before = state_.fetch_add(1, std::memory_order_acq_rel);
      if ((before & kOpen) != 0 && index < active_workers_) work();
      state_.fetch_sub(1, std::memory_order_release);
    }
  }

  TaskFunction function_ = nullptr;
  const void* context_ = nullptr;
  int64_t tasks_ = 0;
  int active_workers_ = 0;
  int workers_ = 0;
  std::atomic_flag busy_ = ATOMIC_FLAG_INIT;
  alignas(kAlignment) std::atomic<int64_t> next_{0};
  alignas(kAlignment) std::atomic<uint32_t> state_{0};
  alignas(kAlignment) std::atomic<uint32_t> epoch_{0};
};

std::mutex pool_mutex;
Pool* pool = nullptr;
std::atomic<int> num_threads{0};

Pool* current_pool() {
  static const int registered = pthread_atfork([] { pool_mutex.lock(); }, [] { pool_mutex.unlock(); },
                                               [] {
                                                 pool = nullptr;
                                                 pool_mutex.unlock();
                                               });
  static_cast<void>(registered);
  const std::lock_guard<std::mutex> lock(pool_mutex);
  if (pool == nullptr) pool = new Pool;
  return pool;
}

class Buffer {
 public:
  Buffer() = default;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { ::operator delete(data_, std::align_val_t{kAlignment}); }

  void* reserve(size_t bytes) {
    if (bytes > size_) {
      ::operator delete(data_, std::align_val_t{kAlignment});
      data_ = nullptr;
      size_ = 0;
      data_ = ::operator new(bytes, std::align_val_t{kAlignment});
      size_ = bytes;
    }
    return data_;
  }

 private:
  void* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace

void run_tasks(int64_t tasks, TaskFunction function, const void* context) {
  const FlushSubnormals flush;
  const int64_t threads = tasks < get_num_threads() ? tasks : get_num_threads();
  if (threads > 1) {
    Pool* const shared = current_pool();
    if (shared->try_acquire()) {
      shared->run(static_cast<int>(threads), tasks, function, context);
      shared->release();
      return;
    }
  }
  for (int64_t task = 0; task < tasks; ++task) function(context, task);
}

int get_num_threads() {
  int count = num_threads.load(std::memory_order_relaxed);
  if (count == 0) {
    int unset = 0;
    num_threads.compare_exchange_strong(unset, default_num_threads());
    count = num_threads.load(std::memory_order_relaxed);
  }
  return count;
}

void set_num_threads(int count) {
  num_threads.store(count < 1 ? 1 : count < kMaxThreads ? count : kMaxThreads, std::memory_order_relaxed);
}

void* thread_scratch(size_t bytes) {
  static thread_local Buffer buffer;
  return buffer.reserve(bytes);
}

void* caller_scratch(size_t bytes) {
  static thread_local Buffer buffer;
  return buffer.reserve(bytes);
}

}  // namespace gdn::cpu
