#include "cuda/sm90_gdn_gating.cuh"
#include "cuda/sm90_gdn_gating.hpp"
#include "cuda/sm90_launch.hpp"

namespace gdn::sm90 {

void gdn_gating(const GdnGatingArgs& args, Stream stream) {
  const GatingParams p = gating_params(args);
  LaunchShape shape;
  shape.grid = static_cast<unsigned>((p.elements + kGatingThreads - 1) / kGatingThreads);
  shape.block = kGatingThreads;
  launch(args.kOp, sm90_gdn_gating, shape, p, args.a.device_index, stream);
}

}  // namespace gdn::sm90
