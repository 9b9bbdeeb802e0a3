#pragma once

#include "core/registry.hpp"
#include "core/validate.hpp"

namespace gdn {

// Set by the calling thread while its calls are to be checked, but not made.
inline constinit thread_local bool checks_only = false;

// Validates, finds the kernel and launches it. Work of size zero is no launch.
template <class Args, class Launch>
void dispatch(const Args& args, int64_t work, Launch&& launch) {
  const Specialization wanted = validate(args);
  const Kernel<Args>& kernel = KernelRegistry<Args>::instance().require(wanted);
  if (work == 0) return;
  if (!checks_only)
    launch(kernel);
  else if (kernel.check)
    kernel.check(args);
}

}  // namespace gdn
