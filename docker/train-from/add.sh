#!/bin/sh
# Adds what taco-launch needs of a training image, where it is missing: sshd, Open MPI, Python 3.8 or newer, and the user
# space of RDMA. What exists stays as it is, and a second run changes nothing. Runs as root, with a network, in images
# of Debian, Ubuntu, RHEL and its like.
set -eu

fail() { # fail WHAT NEXT
  printf 'add.sh: %s\nnext: %s\n' "$1" "$2" >&2
  exit 1
}

there() { # there PROGRAM: whether it is on PATH, or where a system's administrator would find it
  PATH=$PATH:/usr/sbin:/sbin:/usr/local/sbin command -v "$1" >/dev/null 2>&1
}

tool() { # the image's package manager
  for name in apt-get dnf yum; do
    if there "$name"; then
      echo "$name"
      return
    fi
  done
}

packages() { # packages PART: what the part is called by the image's package manager
  case $manager:$1 in
    *:sshd) echo openssh-server ;;
    apt-get:mpirun) echo openmpi-bin ;;
    *:mpirun) echo openmpi ;;
    *:python) echo python3 ;;
    apt-get:rdma) echo libibverbs1 ibverbs-providers librdmacm1 ;;
    *:rdma) echo libibverbs librdmacm ;;
  esac
}

install() { # install PACKAGE..
  echo "add.sh: installing $* ($manager)"
  case $manager in
    apt-get)
      apt-get update
      DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@"
      rm -rf /var/lib/apt/lists/*
      ;;
    *)
      "$manager" install -y "$@"
      "$manager" clean all
      ;;
  esac
}

has_mpirun() {
  there mpirun || [ -x /usr/local/openmpi/bin/mpirun ] || [ -x /usr/local/mpi/bin/mpirun ]
}

has_rdma() { # the library, and a driver of a vendor's NIC for it
  for folder in /usr/lib/*-linux-gnu /usr/lib64 /lib64 /usr/lib; do
    if [ -e "$folder/libibverbs.so.1" ]; then
      for driver in "$folder"/libibverbs/libmlx5-*.so "$folder"/libmlx5.so*; do
        if [ -e "$driver" ]; then return; fi
      done
    fi
  done
  return 1
}

is_new_enough() { # is_new_enough PYTHON
  "$1" -c 'import sys; sys.exit(sys.version_info < (3, 8))'
}

manager=$(tool)
missing=
there sshd || missing="$missing $(packages sshd)"
has_mpirun || missing="$missing $(packages mpirun)"
there python3 || missing="$missing $(packages python)"
has_rdma || missing="$missing $(packages rdma)"
if [ -n "$missing" ]; then
  [ -n "$manager" ] || fail "$missing missing, and there is no apt-get, dnf or yum" "install them by hand"
  # shellcheck disable=SC2086 # words
  install $missing
fi

# RHEL keeps Open MPI off PATH, for environment modules; the other hosts' part of it, orted, has to be found as well.
if ! has_mpirun && [ -x /usr/lib64/openmpi/bin/mpirun ]; then
  for program in mpirun mpiexec orterun orted prte prted prterun ompi_info; do
    if [ -x "/usr/lib64/openmpi/bin/$program" ]; then
      ln -s "/usr/lib64/openmpi/bin/$program" "/usr/local/bin/$program"
    fi
  done
  echo /usr/lib64/openmpi/lib >/etc/ld.so.conf.d/openmpi-of-taco-launch.conf
  ldconfig
fi

# The agent runs under it. Another Python beside an older one would leave that one's torch behind, so none is chosen here.
is_new_enough python3 || fail "python3 is $(python3 --version 2>&1), and 3.8 is needed" "use a newer base image"
there sshd || fail "there is no sshd after the installation" "install an OpenSSH server by hand"
has_mpirun || fail "there is no mpirun after the installation" "install Open MPI by hand"
mkdir -p /run/sshd          # OpenSSH's folder for its unprivileged part
rm -f /etc/ssh/ssh_host_*   # an image's keys would be known to all who have the image; set-up makes each host its own
echo "add.sh: sshd, mpirun, $(python3 --version 2>&1) and the user space of RDMA are there"
