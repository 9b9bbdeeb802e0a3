#!/usr/bin/env bash
# Everything that needs a Hopper GPU, in one call: install, contract suite, GPU tests, sanitizers, benchmark.
#
#   tests/gpu/run_all.sh [OUT]     # logs and benchmark results go to OUT (default build/gpu)
#
# SKIP="memcheck bench" leaves parts out; PEERS=1 also times SGLang and FlashInfer, SERVE=1 also serves with stock SGLang
# and with gdn_tile, if PYTHONPATH has them.
set -uo pipefail
cd "$(dirname "$0")/../.."
out=${1:-build/gpu}
mkdir -p "$out"
export PYTHONSAFEPATH=1
status=0
part() { # NAME COMMAND...
  local name=$1
  shift
  [[ " ${SKIP:-} " == *" $name "* ]] && return
  local start=$SECONDS
  "$@" >"$out/$name.log" 2>&1
  local code=$?
  tail -n 4 "$out/$name.log" | cut -c1-200
  echo "$name: exit code $code after $((SECONDS - start)) s"
  ((code == 0)) || status=1
}
part install python3 -m pip install --no-build-isolation --no-deps .
part contract pytest --device cuda -q -p no:cacheprovider tests/contract
cut_differently="bit_for_bit or prefix_hit or shorter_run" # a row in parts has the bits of whole rows only
part segments env SGLANG_GDN_CONTEXT_PARALLEL=always pytest --device cuda -q -p no:cacheprovider \
  tests/contract/test_{prefill,slots,fused,layouts}.py -k "not ($cut_differently)"
part gpu pytest --device cuda -q -p no:cacheprovider tests/gpu
sanitized="test_convolution_options or test_sanitized or (test_extras and 33-h2hv6)"
part memcheck timeout 240 compute-sanitizer --tool memcheck --error-exitcode 1 \
  pytest --device cuda -q -p no:cacheprovider tests/gpu/test_{decode,frontend,chunk_rule,context_parallel}.py -k "test_slots or $sanitized"
part racecheck_install python3 -m pip install --no-build-isolation --no-deps --target "$out/racecheck" \
  -Ccmake.define.SGLANG_GDN_RACECHECK=ON .
part racecheck env PYTHONPATH="$out/racecheck" timeout 240 compute-sanitizer --tool racecheck --error-exitcode 1 \
  pytest --device cuda -q -p no:cacheprovider tests/gpu/test_{decode,frontend,chunk_rule,context_parallel}.py -k "$sanitized"
part soak timeout 400 python3 tests/gpu/soak.py --minutes 5
part bench python3 benchmarks/sm90.py --output "$out" ${PEERS:+--peers}
part errors python3 benchmarks/sm90_errors.py --output "$out/errors.json"
[[ -z ${SERVE:-} ]] || part serving env -u PYTHONSAFEPATH timeout 500 python3 benchmarks/serving/run.py --output "$out"
exit $status
