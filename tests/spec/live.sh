# What `run` and `client` share: the binary, virtual environments, and a live server over a small made-up sample. Sourced.

set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
server=

fail() {
  printf 'spec: %s\n' "$@" >&2
  exit 2
}

python3 -c 'import ensurepip, venv' 2>/dev/null ||
  fail "there is no python3 with venv; install it (Debian: apt-get install python3-venv)"

if [ -z "${REFRAIN_BIN:-}" ]; then
  (cd "$root" && cargo build --release --locked)
  REFRAIN_BIN=$(cd "$root" && cd "${CARGO_TARGET_DIR:-target}" && pwd)/release/refrain
fi
[ -x "$REFRAIN_BIN" ] || fail "REFRAIN_BIN is no program: $REFRAIN_BIN"

# Sets `venv` to the virtual environment of this name, in which what the list names is installed. A copy of the list is
# laid down once all of it is.
environment() {
  local name=$1 list=$2
  venv=${XDG_CACHE_HOME:-$HOME/.cache}/$name
  cmp -s "$list" "$venv/installed.txt" && return
  echo "==> installing $(cut -d= -f1 "$list" | paste -sd ' ') into $venv"
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" --quiet --disable-pip-version-check install -r "$list"
  cp "$list" "$venv/installed.txt"
}

end() {
  if [ -n "$server" ]; then
    kill "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
  fi
  if [ "${KEEP:-}" = 1 ]; then echo "==> $work is left"; else rm -rf "$work"; fi
}

# Starts the service in a folder of its own, which becomes the working folder; sets `url`, and the token that it asks for.
serve() {
  work=$(mktemp -d)
  trap end EXIT
  cd "$work"
  mkdir pipelines
  cp "$root/pipelines/zone_hour.toml" pipelines/
  "$REFRAIN_BIN" sample --out data --scale 0.002 >/dev/null
  REFRAIN_TOKEN=$("$REFRAIN_BIN" token new --principal spec --scope admin --data-dir refrain-data 2>/dev/null)
  export REFRAIN_TOKEN
  local port
  port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
  url=http://127.0.0.1:$port
  env -u REFRAIN_FAULT "$REFRAIN_BIN" serve --listen "127.0.0.1:$port" --data-dir refrain-data --pipelines pipelines "$@" \
    >server.log 2>&1 &
  server=$!
  for _ in $(seq 300); do
    "$REFRAIN_BIN" healthcheck --listen "127.0.0.1:$port" 2>/dev/null && return
    kill -0 "$server" 2>/dev/null || { cat server.log >&2; fail "the server ended at once"; }
  done
  fail "the server was not up in time" "$(tail -20 server.log)"
}

still_up() {
  kill -0 "$server" 2>/dev/null || fail "the server ended" "$(tail -20 server.log)"
}
