#!/usr/bin/env bash
# setup.sh FOLDER: an aarch64 CPython 3.11 with TileLang-Ascend's lowering in FOLDER, from package registries alone.
#
# Debian's archive gives the interpreter (bookworm) and the C and C++ libraries (trixie: the compiler needs them newer),
# checked by its signatures; PyPI gives the wheels, checked by the hashes of requirements.txt. Nothing of it is ever
# linked into the package. On x86 the interpreter runs under qemu-user. Needs apt-get as root once, for qemu-user-static
# and mmdebstrap.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:?usage: setup.sh FOLDER}
stamp=$folder/.complete
wanted=$(cat "$here/requirements.txt" "$here/setup.sh" | sha256sum)
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then exit 0; fi

mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 'Label: Debian' | head -n 1)
if ! command -v qemu-aarch64-static > /dev/null || ! command -v mmdebstrap > /dev/null; then
  apt-get update -qq
  mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | grep '/debian/*$' | head -n 1)
  apt-get install -y -qq --no-install-recommends qemu-user-static mmdebstrap > /dev/null
fi
[ -n "$mirror" ] || mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | grep '/debian/*$' | head -n 1)

rm -rf "$folder"
mkdir -p "$folder"
mmdebstrap --quiet --arch=arm64 --variant=extract --hook-dir=/usr/share/mmdebstrap/hooks/merged-usr \
  --include=python3.11-minimal,libpython3.11-stdlib,libc6,libstdc++6,libgcc-s1,libgomp1,zlib1g,libffi8,libexpat1,libbz2-1.0,liblzma5,libuuid1,media-types \
  '' "$folder/root" "deb $mirror bookworm main" "deb $mirror trixie main"
python3 -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary=:all: \
  --target "$folder/site" --python-version 3.11 --implementation cp --abi cp311 --abi abi3 --abi none \
  --platform manylinux2014_aarch64 --platform manylinux_2_28_aarch64 --platform manylinux_2_17_aarch64 \
  -r "$here/requirements.txt"
echo "$wanted" > "$stamp"
