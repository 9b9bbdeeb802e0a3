#pragma once

#include "ascend/variant.hpp"
#include "core/tensor_ref.hpp"

namespace gdn::ascend {

// Everything of a launch but the launch. A kernel's `prepare` refuses what the kernel does not do.
template <class Arguments>
struct Prepared {
  const Variant<Arguments>* variant;
  Arguments arguments;
};

template <class Arguments>
void run(const Prepared<Arguments>& prepared, Stream stream) {
  launch(*prepared.variant, prepared.arguments, stream.handle);
}

}  // namespace gdn::ascend
