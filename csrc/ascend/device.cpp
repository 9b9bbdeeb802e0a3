#include "ascend/device.hpp"

#include <dlfcn.h>

#include <array>
#include <atomic>
#include <stdexcept>
#include <string>

#include "acl/acl.h"
#include "ascend/variant.hpp"

namespace gdn::ascend {
namespace {

constexpr const char* kKernels = "libsglang_gdn_ascend.so";

// Lies beside the module that this is linked into.
void* load_kernels() {
  Dl_info self;
  dladdr(reinterpret_cast<void*>(&device_function), &self);
  const std::string module = self.dli_fname;
  void* library = dlopen((module.substr(0, module.rfind('/') + 1) + kKernels).c_str(), RTLD_NOW);
  if (!library)
    throw std::runtime_error(std::string(kKernels) + " cannot be loaded (source CANN's set_env.sh): " + dlerror());
  return library;
}

// CANN is loaded, never linked: the package imports on machines without it.
void* acl_library() {
  static void* const library = dlopen("libascendcl.so", RTLD_NOW | RTLD_GLOBAL);
  if (!library)
    throw std::runtime_error("libascendcl.so cannot be loaded (source CANN's set_env.sh): " + std::string(dlerror()));
  return library;
}

template <class Function>
Function* acl_function(const char* name) {
  auto* function = reinterpret_cast<Function*>(dlsym(acl_library(), name));
  if (!function) throw std::runtime_error(std::string("libascendcl.so has no ") + name);
  return function;
}

}  // namespace

void* device_function(const char* name) {
  static void* const library = load_kernels();
  void* function = dlsym(library, name);
  if (!function) throw std::runtime_error(std::string(kKernels) + " has no " + name);
  return function;
}

int32_t cube_cores(int32_t device) {
  static std::array<std::atomic<int32_t>, 64> known = {};
  std::atomic<int32_t>& cores = known[static_cast<size_t>(device) % known.size()];
  if (cores == 0) {
    int64_t value = 0;
    static auto* const get_device_info = acl_function<decltype(aclrtGetDeviceInfo)>("aclrtGetDeviceInfo");
    const aclError status = get_device_info(static_cast<uint32_t>(device), ACL_DEV_ATTR_CUBE_CORE_NUM, &value);
    if (status != ACL_SUCCESS || value < 1)
      throw std::runtime_error("aclrtGetDeviceInfo(ACL_DEV_ATTR_CUBE_CORE_NUM) failed with status " +
                               std::to_string(status));
    cores = static_cast<int32_t>(value);
  }
  return cores;
}

}  // namespace gdn::ascend
