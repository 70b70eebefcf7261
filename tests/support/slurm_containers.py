"""Stand-ins for Apptainer, and for pyxis with enroot: real mounts and namespaces, and an image that is a folder.

They run what they are given in a file system of its own, and keep the arguments in `calls` beside them.
"""

import shutil
from pathlib import Path

_ENTER = """#!/bin/sh
# Simulated container: enter OPTIONS-OF-UNSHARE IMAGE FROM:TO[:ro],... COMMAND
exec unshare $1 --mount -- /bin/sh -c '
image=$2 start=$PWD
mount --rbind "$image" "$image" || exit
IFS=,
for each in /usr:/usr /proc:/proc /dev:/dev $3; do
  from=${each%%:*} to=${each#*:}
  mkdir -p "$image${to%:ro}" && mount --rbind "$from" "$image${to%:ro}" || exit
  [ "$to" = "${to%:ro}" ] || mount -o remount,bind,ro "$image${to%:ro}" || exit
done
unset IFS
shift 3
cd "$image" && pivot_root . . && umount -l . || exit
cd "$start" 2>/dev/null || cd /
exec "$@"
' sh "$@"
"""
_APPTAINER = """#!/bin/sh
echo "apptainer $*" >>{calls}
shift
mounts=/tmp:/tmp
while :; do
  case $1 in
    --nv) shift ;;
    --bind) mounts=$mounts,$2; shift 2 ;;
    *) break ;;
  esac
done
image=$1
shift
exec {enter} "" "$image" "$mounts" "$@"
"""
_SRUN = """#!/bin/sh
image= mounts= is_entered=
for word; do
  shift
  case $word in
    --container-image=*) image=${word#*=} ;;
    --container-mounts=*) mounts=${word#*=} ;;
    --container-mount-home) ;;
    -*) set -- "$@" "$word" ;;
    *)
      [ -z "$image" ] || [ "$is_entered" ] || set -- "$@" {enter} "--user --map-root-user" "$image" "$mounts"
      is_entered=1
      set -- "$@" "$word"
      ;;
  esac
done
[ -z "$image" ] || echo "srun --container-image=$image --container-mounts=$mounts" >>{calls}
[ -z "$image" ] || [ -d "$image" ] || { echo "slurmstepd-n1: error: pyxis:     [ERROR] No such file or directory: $image" >&2; exit 1; }
exec {srun} "$@"
"""


def write(folder: Path) -> Path:
    """Write the programs into a folder, which is to be first in PATH; return the file with their arguments."""
    calls, enter = folder / "calls", folder / "enter"
    words = {"calls": str(calls), "enter": str(enter), "srun": str(shutil.which("srun"))}
    for name, text in (("enter", _ENTER), ("apptainer", _APPTAINER), ("srun", _SRUN)):
        for word, value in words.items():
            text = text.replace(f"{{{word}}}", value)  # noqa: PLW2901 - the program, filled in
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    calls.touch()
    return calls


def image(folder: Path) -> Path:
    """Make a folder an image: the programs of this machine, with files and variables of its own."""
    for name in ("etc", "tmp", "root"):
        (folder / name).mkdir(parents=True)
    for name in ("bin", "lib", "lib64"):
        (folder / name).symlink_to(f"usr/{name}")
    (folder / "etc" / "image-name").write_text("from-image\n")
    (folder / "etc" / "environment").write_text("PATH=/usr/bin:/bin\nOF_IMAGE=1\nSET=by the image\n")
    return folder
