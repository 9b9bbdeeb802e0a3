#!/usr/bin/env bash
# setup.sh FOLDER PYTHON: an aarch64 CPython 3.11 with TileLang-Ascend's lowering in FOLDER, from package registries
# alone. Ends with status 3, and the reason as its last line, where this machine cannot reach them.
#
# Debian's archive gives the interpreter (bookworm), the C and C++ libraries (trixie: the compiler needs them newer) and,
# except on aarch64, the emulator, checked by its signatures; PyPI gives the wheels, checked by the hashes of
# requirements.txt. Packages are unpacked, never installed: neither root nor anything outside FOLDER is needed, and
# nothing of it is ever linked into the package. PYTHON is any Python with pip.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:?usage: setup.sh FOLDER PYTHON}
python=${2:?usage: setup.sh FOLDER PYTHON}
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
log=$(mktemp)
trap 'rm -f "$log"' EXIT

unreachable() {
  echo "$1" >&2
  exit 3
}

# What cannot be fetched is the machine's lack; anything else, such as contents that are not what was pinned, is an error.
fetch() {
  "$@" > "$log" 2>&1 && return
  cat "$log" >&2
  local lack
  lack=$(grep -E 'Failed to fetch|No matching distribution found|No module named pip' "$log" | tail -n 1 || true)
  if [ -z "$lack" ] || grep -Eqi 'hash|not signed|signature' "$log"; then exit 1; fi
  unreachable "$lack"
}

command -v apt-get > /dev/null || unreachable "there is no apt-get"
[ -f "$keyring" ] || unreachable "there is no keyring of Debian's archive"
mirror=$(apt-get indextargets --no-release-info --format '$(SITE)' 'Created-By: Packages' | grep '/debian/*$' | head -n 1 || true)
[ -n "$mirror" ] || unreachable "apt knows no mirror of Debian's archive"

rm -rf "$folder"
mkdir -p "$folder"/apt/{lists,cache,packages} "$folder"/system/usr/lib "$folder"/emulator
folder=$(cd "$folder" && pwd)
host=$(dpkg --print-architecture)
for suite in bookworm trixie; do
  echo "deb [signed-by=$keyring arch=arm64] $mirror $suite main"
done > "$folder/apt/sources.list"
if [ "$host" != arm64 ]; then
  echo "deb [signed-by=$keyring arch=$host] $mirror bookworm main" >> "$folder/apt/sources.list"
  emulator=qemu-user-static:$host
fi
touch "$folder/apt/status"
apt() {
  fetch apt-get -o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o APT::Architectures::="$host" \
    -o Dir::Etc::SourceList="$folder/apt/sources.list" -o Dir::Etc::SourceParts=- -o Dir::State="$folder/apt" \
    -o Dir::State::Lists="$folder/apt/lists" -o Dir::State::Status="$folder/apt/status" \
    -o Dir::Cache="$folder/apt/cache" -o Acquire::Languages=none -o APT::Sandbox::User="$(id -un)" \
    -o APT::Update::Error-Mode=any "$@"
}
apt update
cd "$folder/apt/packages"
apt download python3.11-minimal libpython3.11-minimal libpython3.11-stdlib libc6 libstdc++6 libgcc-s1 libgomp1 zlib1g \
  libffi8 libexpat1 libbz2-1.0 liblzma5 libuuid1 media-types ${emulator:-}
for package in *.deb; do
  case $package in
    qemu-*) dpkg-deb --fsys-tarfile "$package" | tar -x -C "$folder/emulator" --strip-components=3 ./usr/bin/qemu-aarch64-static ;;
    *) dpkg-deb -x "$package" "$folder/system" ;;
  esac
done
ln -s usr/lib "$folder/system/lib"
cd "$folder"
rm -r apt

fetch "$python" -m pip install --disable-pip-version-check --no-deps --require-hashes --only-binary=:all: \
  --target "$folder/site" --python-version 3.11 --implementation cp --abi cp311 --abi abi3 --abi none \
  --platform manylinux2014_aarch64 --platform manylinux_2_28_aarch64 --platform manylinux_2_17_aarch64 \
  -r "$here/requirements.txt"
