#!/usr/bin/env bash
# Builds Horovod's wheel from its source archive, for the torch that a Python has and for the Open MPI on PATH.
#
# usage: scripts/horovod_wheel.sh PYTHON ARCHIVE FOLDER
# PYTHON has torch, pip, setuptools, wheel, packaging and cffi, and headers; mpicxx, g++, cmake and make are on PATH. The
# wheel comes into FOLDER. HOROVOD_GPU_OPERATIONS=NCCL builds it for GPUs, HOROVOD_WITH_GLOO=1 with Gloo, which elastic jobs require
# (three minutes more); other HOROVOD_* and MAKEFLAGS reach the build.
set -euo pipefail

python=$1 archive=$2 folder=$3
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
tar -xzf "$archive" -C "$work" --strip-components 1
# Horovod's CMake asks for C++14, torch's headers for C++17.
sed -i 's/CMAKE_CXX_STANDARD 14/CMAKE_CXX_STANDARD 17/' "$work/CMakeLists.txt" "$work/horovod/torch/CMakeLists.txt"
if [[ -z ${HOROVOD_GPU_OPERATIONS:-} ]]; then
  # A torch with CUDA beside any nvcc would make it build for GPUs, which takes a whole toolkit of a fitting version.
  sed -i 's/torch.version.cuda is not None/False/' "$work/cmake/Modules/FindPytorch.cmake"
fi
# GCC 14 refuses the assignment to this member.
sed -i 's/const size_type count_;/size_type count_;/' \
  "$work/third_party/flatbuffers/include/flatbuffers/stl_emulation.h"
memory=$(awk '/^MemAvailable:/ { print int($2 / 1500000) }' /proc/meminfo) # one compiler takes up to 1.5 GB
jobs=$(nproc)
((jobs <= memory)) || jobs=$((memory > 0 ? memory : 1))
gloo=HOROVOD_WITHOUT_GLOO=1
[[ -z ${HOROVOD_WITH_GLOO:-} ]] || gloo=HOROVOD_WITH_GLOO=1
# Since GCC 13 these headers no longer come along with others, as Horovod's sources expect.
env CXXFLAGS="-include cstdint -include stdexcept -include string ${CXXFLAGS:-}" MAKEFLAGS="${MAKEFLAGS:--j$jobs}" \
  HOROVOD_WITH_PYTORCH=1 HOROVOD_WITHOUT_TENSORFLOW=1 HOROVOD_WITHOUT_MXNET=1 HOROVOD_WITH_MPI=1 \
  "$gloo" \
  "$python" -I -m pip -v wheel --no-deps --no-build-isolation --no-cache-dir --wheel-dir "$folder" "$work"
