# Fetches the key that signs a repository, for the scripts that it is prepended to; packages.sh is prepended to this script.
#
# Who is on the way, or has the mirror, may put any key there: it is taken where its fingerprint is one of those that are
# expected. Only coreutils and awk are used, as a host may have neither gpg nor Python. RFC 9580: 6.2 (the armor), 4.2
# (packets), 5.5.4 (fingerprints).

# shellcheck shell=sh
# shellcheck disable=SC2154 # work, mirror and named are of packages.sh

fetch_key() { # fetch_key URL FILE FINGERPRINTS: with commas between them, in capital letters
  fetch "$1" "$work/fetched"
  armored <"$work/fetched" >"$work/key" || fail "$1 is no PGP key in text form"
  found=$(fingerprints <"$work/key") || found=
  [ -n "$found" ] || fail "$1 is no PGP key that can be read"
  for key in $found; do
    case ",$3," in
      *",$key,"*) ;;
      *) fail "$1 has the key $key, and is expected to have $3: it was not taken
hint: who may have changed it? if the mirror signs by a key of its own: ${mirror%.*}.key_fingerprint in the inventory" ;;
    esac
  done
  mkdir -p "${2%/*}"
  cat "$work/key" >"$2"
}

armored() { # the one key block of stdin, and nothing else of it: whoever reads it later has to read the same
  awk '
    { sub(/\r$/, "") }
    state == 0 {
      if ($0 == "-----BEGIN PGP PUBLIC KEY BLOCK-----") {
        print $0 "\n"
        state = 1
      }
      next
    }
    state == 1 { # headers, up to an empty line
      if ($0 ~ /^[ \t]*$/) state = 2
      next
    }
    state == 2 && /^[A-Za-z0-9+\/]+=?=?$/ && length($0) < 80 {
      print
      if (/=$/) state = 3
      next
    }
    (state == 2 || state == 3) && /^=[A-Za-z0-9+\/]+$/ && length($0) == 5 { # a checksum
      print
      state = 4
      next
    }
    state >= 2 && state <= 4 && $0 == "-----END PGP PUBLIC KEY BLOCK-----" {
      print
      state = 5
      next
    }
    state == 5 && /^[ \t]*$/ { next }
    {
      wrong = 1
      exit
    }
    END { exit wrong || state != 5 }
  '
}

fingerprints() { # of each primary key of stdin, which `armored` has printed
  sed '1,2d; /^[=-]/d' | base64 -d | od -An -v -tx1 | tr -d ' \n' | awk '
    function byte(at) {
      return 16 * index(digits, substr(hex, 2 * at + 1, 1)) + index(digits, substr(hex, 2 * at + 2, 1)) - 17
    }
    function number(at, count) {
      value = 0
      while (count-- > 0) value = 256 * value + byte(at++)
      return value
    }
    function escaped(from, count) {
      while (count-- > 0) printf "\\%03o", byte(from++)
    }
    BEGIN { digits = "0123456789abcdef" }
    {
      hex = $0
      whole = length(hex) / 2
      while (at < whole) {
        head = byte(at++)
        if (head >= 192) { # the newer form of a packet
          tag = head - 192
          size = byte(at++)
          if (size >= 192 && size < 224) size = 256 * (size - 192) + byte(at++) + 192
          else if (size == 255) {
            size = number(at, 4)
            at += 4
          } else if (size >= 224) exit wrong = 1
        } else if (head >= 128 && head % 4 < 3) {
          tag = int((head - 128) / 4)
          bytes = head % 4 == 2 ? 4 : 1 + head % 4
          size = number(at, bytes)
          at += bytes
        } else exit wrong = 1
        if (at + size > whole) exit wrong = 1
        # signatures, keys, user IDs and attributes alone: Sequoia reads a secret key (5, 7) as a certificate as well
        if (tag != 2 && tag != 6 && tag != 13 && tag != 14 && tag != 17) exit wrong = 1
        if (tag == 6) { # a primary key; of version 4 alone is known how its fingerprint is made
          if (byte(at) != 4 || size > 65535) exit wrong = 1
          printf "\\231\\%03o\\%03o", int(size / 256), size % 256
          escaped(at, size)
          print ""
        }
        at += size
      }
    }
    END { exit wrong }
  ' >"$work/packets" || return 1
  while IFS= read -r packet; do
    # shellcheck disable=SC2059 # each byte is an escape
    printf "$packet" | sha1sum | cut -d ' ' -f 1 | tr abcdef ABCDEF
  done <"$work/packets"
}
