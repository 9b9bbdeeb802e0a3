#include "cuda/sm90_gdn_gating.cuh"
#include "cuda/sm90_gdn_gating.hpp"
#include "cuda/sm90_launch.hpp"

namespace gdn::sm90 {

void gdn_gating(const GdnGatingArgs& args, Stream stream) {
  GatingParams p;
  p.A_log = float_ptr(args.A_log);
  p.dt_bias = float_ptr(args.dt_bias);
  p.a = float_ptr(args.a);
  p.b = float_ptr(args.b);
  p.g = args.g.as<float>();
  p.beta = args.beta.as<float>();
  p.a_pitch = args.a.stride[0];
  p.b_pitch = args.b.stride[0];
  p.elements = args.a.numel();
  p.heads = static_cast<int32_t>(args.a.shape[1]);
  LaunchShape shape;
  shape.grid = static_cast<unsigned>((p.elements + kGatingThreads - 1) / kGatingThreads);
  shape.block = kGatingThreads;
  launch(args.kOp, sm90_gdn_gating, shape, p, args.a.device_index, stream);
}

}  // namespace gdn::sm90
