#pragma once

#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/operators.hpp"
#include "core/specialization.hpp"

namespace gdn {

template <class Args>
struct Kernel {
  std::string name;  // "cpu_gdn_decode"
  Device device;
  Support support;
  void (*launch)(const Args&, Stream);
  void (*check)(const Args&) = nullptr;  // refuses what `launch` would, if that is more than `support` says
};

// One list of kernels per operator. Earlier entries win. Filled once, when the module is loaded.
template <class Args>
class KernelRegistry {
 public:
  static KernelRegistry& instance() {
    static KernelRegistry registry;
    return registry;
  }

  void add(Kernel<Args> kernel) { kernels_.push_back(std::move(kernel)); }
  const std::vector<Kernel<Args>>& kernels() const { return kernels_; }

  const Kernel<Args>* find(const Specialization& wanted) const {
    for (const auto& kernel : kernels_)
      if (kernel.device == wanted.device && kernel.support.refuse(wanted).empty()) return &kernel;
    return nullptr;
  }

  // One line per kernel of the wanted device: why it does not serve `wanted`.
  std::string explain(const Specialization& wanted) const {
    std::string text;
    for (const auto& kernel : kernels_) {
      if (kernel.device != wanted.device) continue;
      const std::string reason = kernel.support.refuse(wanted);
      text += "\n  " + kernel.name + ": " + (reason.empty() ? "serves it" : reason);
    }
    return text.empty() ? std::string("\n  no kernel of this operator is built for ") + to_string(wanted.device) : text;
  }

  const Kernel<Args>& require(const Specialization& wanted) const {
    if (const auto* kernel = find(wanted)) return *kernel;
    throw NoKernelError(wanted.op, "must be one that is built; got " + wanted.to_string() + explain(wanted));
  }

 private:
  std::vector<Kernel<Args>> kernels_;
};

void register_cpu_kernels();
#ifdef SGLANG_GDN_WITH_CUDA
void register_sm90_kernels();
#endif
#ifdef SGLANG_GDN_WITH_ASCEND
void register_ascend_kernels();
#endif

}  // namespace gdn
