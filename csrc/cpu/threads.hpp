#pragma once

#include <cstddef>
#include <cstdint>

// Compiled once, shared by every instruction-set build. The kernels are compiled several times with different flags,
// so they must not instantiate templates of the standard library; this interface is therefore plain functions.
namespace gdn::cpu {

using TaskFunction = void (*)(const void* context, int64_t task);

// Runs function(context, 0 .. tasks-1), each once, on the calling thread and the pool, and returns when all are done.
// Tasks run with subnormal floats flushed to zero, must be independent of each other and must not call run_tasks. A
// second caller while the pool is busy runs its tasks alone.
void run_tasks(int64_t tasks, TaskFunction function, const void* context);

// Threads that work on one call, the caller included. Default: SGLANG_GDN_NUM_THREADS, else the CPUs that the
// process may use.
int get_num_threads();
void set_num_threads(int count);

// Memory of the calling thread, aligned to 64 bytes, contents undefined, valid until its next call. Grows, is never
// given back before the thread ends, so that a warm call does not allocate.
void* thread_scratch(size_t bytes);

// A second such buffer for what a caller of run_tasks shares with its tasks.
void* caller_scratch(size_t bytes);

}  // namespace gdn::cpu
