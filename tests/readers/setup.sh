# Sourced by the scripts that compare Refrain with other engines, with `program` set to what they are called. Sets
# REFRAIN_BIN, which is built unless it is named, and `python`, that of the virtual environment with the readers.
# shellcheck shell=bash

fail() {
  printf '%s: %s\n' "$program" "$@" >&2
  exit 2
}

readers=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$readers/../.." && pwd)
venv=${XDG_CACHE_HOME:-$HOME/.cache}/refrain-readers-venv

python3 -c 'import ensurepip, venv' 2>/dev/null ||
  fail "there is no python3 with venv; install it (Debian: apt-get install python3-venv)"

if [ -z "${REFRAIN_BIN:-}" ]; then
  (cd "$root" && cargo build --release --locked)
  REFRAIN_BIN=$(cd "$root" && cd "${CARGO_TARGET_DIR:-target}" && pwd)/release/refrain
fi
[ -x "$REFRAIN_BIN" ] || fail "REFRAIN_BIN is no program: $REFRAIN_BIN"

# A copy of the list is laid down once all of it is installed.
if ! cmp -s "$readers/requirements.txt" "$venv/installed.txt"; then
  echo "==> installing the readers into $venv"
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" --quiet --disable-pip-version-check install -r "$readers/requirements.txt"
  cp "$readers/requirements.txt" "$venv/installed.txt"
fi

python=$venv/bin/python
# Java takes the encoding of file names from the locale.
export REFRAIN_BIN LC_ALL=C.UTF-8 PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 PYTHONPATH=$readers
