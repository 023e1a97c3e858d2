#!/usr/bin/env bash
# Runs every test. On a Debian system, as root, it first installs what the tests can use and the machine lacks:
# Mesa's software Vulkan and GL drivers. Without them the GPU tests say what they skipped
# (with WGFUSE_REQUIRE_GPU=1 a skip is a failure).
set -euo pipefail
cd "$(dirname "$0")/.."

have_library() { ldconfig -p 2>/dev/null | grep -q "$1"; }
have_vulkan_driver() {
    local dir
    for dir in /usr/share/vulkan/icd.d /etc/vulkan/icd.d "${XDG_DATA_HOME:-$HOME/.local/share}/vulkan/icd.d"; do
        compgen -G "$dir/*.json" >/dev/null && return 0
    done
    [ -n "${VK_DRIVER_FILES:-}${VK_ICD_FILENAMES:-}" ]
}

if [ "$(uname -s)" = Linux ]; then
    missing=()
    have_vulkan_driver || missing+=(mesa-vulkan-drivers)
    have_library libvulkan.so.1 || missing+=(libvulkan1)
    have_library libEGL.so.1 || missing+=(libegl1)
    have_library libGLESv2.so.2 || missing+=(libgles2)
    if [ "${#missing[@]}" -gt 0 ]; then
        if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
            echo "installing ${missing[*]}"
            apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
                "${missing[@]}" >/dev/null || echo "could not install ${missing[*]}; going on without"
        else
            echo "not installed: ${missing[*]}; the GPU tests skip what they cannot open"
        fi
    fi
fi

cargo test --release "$@"
# The first cases of every operation and type, on every GPU against the CPU; without a GPU it says so.
exec cargo run --release --example backend_ops -- test --subset
