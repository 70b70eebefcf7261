#!/bin/sh
# Builds the lab's apt repository from trees of packages and signs it with a key made here: where the trees are those
# that it was built from, nothing happens. Arguments: folder of the repository, its address; stdin: a tar of the trees.
# Prints `built` where it was, or an empty line, and the key.
set -eu
target=$1 address=$2
umask 022
mkdir -p "$target"
GNUPGHOME="$target.key"
export GNUPGHOME
if ! [ -s "$GNUPGHOME/public.asc" ]; then
  mkdir -m 700 "$GNUPGHOME" 2>/dev/null || [ -d "$GNUPGHOME" ]
  gpg --batch --quiet --passphrase '' --quick-generate-key 'taco-launch lab (simulated packages)' rsa2048 sign never \
    2>/dev/null
  gpg --batch --armor --export >"$GNUPGHOME/new.asc"
  mv "$GNUPGHOME/new.asc" "$GNUPGHOME/public.asc"
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat >"$work/trees.tar"
sum=$(sha256sum <"$work/trees.tar")
built=
if [ "$(cat "$target.sum" 2>/dev/null)" != "$sum $address" ]; then
  rm -f "$target.sum"
  mkdir "$work/trees" "$work/new"
  tar -xf "$work/trees.tar" -C "$work/trees"
  toolkit=libnvidia-container/stable/deb
  for tree in "$work"/trees/*/*_* "$work/trees/$toolkit"/*_*; do
    [ -d "$tree/DEBIAN" ] || continue
    folder=${tree#"$work/trees/"}
    folder=${folder%/*}
    [ "$folder" != "$toolkit" ] || folder="$folder/$(dpkg --print-architecture)"
    mkdir -p "$work/new/$folder"
    dpkg-deb --root-owner-group -Zgzip --build "$tree" "$work/new/$folder" >/dev/null
  done
  for release in $(find "$work/new" -name '*.deb' -printf '%h\n' | sort -u); do
    cd "$release"
    apt-ftparchive packages . >Packages
    gzip -9 -k -n Packages
    apt-ftparchive -o APT::FTPArchive::Release::Origin=taco-launch-lab release . >"$work/Release"
    mv "$work/Release" Release
    gpg --batch --yes --quiet --clearsign --output InRelease Release
    gpg --batch --yes --quiet --armor --detach-sign --output Release.gpg Release
  done
  cd /
  cp "$GNUPGHOME/public.asc" "$work/new/libnvidia-container/gpgkey"
  # as NVIDIA writes it
  printf '%s\n' "deb $address/$toolkit/\$(ARCH) /" "#deb $address/libnvidia-container/experimental/deb/\$(ARCH) /" \
    >"$work/new/$toolkit/nvidia-container-toolkit.list"
  rm -rf "$target.old"
  [ ! -e "$target" ] || mv "$target" "$target.old"
  mv "$work/new" "$target"
  chmod 755 "$target"
  rm -rf "$target.old"
  echo "$sum $address" >"$target.sum"
  built=built
fi
echo "$built"
cat "$GNUPGHOME/public.asc"
