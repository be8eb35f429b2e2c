#!/usr/bin/env bash
# Makes sure that what pip cannot install is there: `servers` (MariaDB and Redis), `python PYTHON` (venv) or `examples`
# (what the signing examples of docs/ingest.md are written for, so that tests can run them).
# Installs Debian's packages when it may; otherwise says exactly what to install.
set -euo pipefail

readonly SERVER_PACKAGES="mariadb-server-core mariadb-client-core redis-server"

have() { PATH="$PATH:/usr/sbin:/usr/local/sbin" command -v "$1" >/dev/null 2>&1; }

# Root installs; others only where sudo asks for no password, because make must never wait for one unseen.
as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif have sudo && sudo -n true 2>/dev/null; then
        sudo -n "$@"
    else
        return 1
    fi
}

# Debian starts a packaged server as soon as it is installed. Ours are private, so forbid that for the moment.
without_starting_services() {
    local policy=/usr/sbin/policy-rc.d
    if [ -e "$policy" ]; then
        "$@"
        return
    fi
    trap 'as_root rm -f /usr/sbin/policy-rc.d' EXIT # whatever happens: it would stop all later packages
    printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
    as_root chmod +x "$policy"
    local status=0
    "$@" || status=$?
    as_root rm -f "$policy"
    return "$status"
}

install_packages() {
    local log
    log=$(mktemp)
    echo "Installing Debian packages: $* ..."
    if without_starting_services as_root env DEBIAN_FRONTEND=noninteractive \
        sh -c 'apt-get update -q && apt-get install -q -y --no-install-recommends "$@"' sh "$@" >"$log" 2>&1; then
        rm -f "$log"
        return 0
    fi
    tail -n 15 "$log" >&2
    rm -f "$log"
    return 1
}

install_or_explain() {
    local packages=$1 advice=$2
    # shellcheck disable=SC2086  # the list is meant to be split
    if have apt-get && as_root true && install_packages $packages; then
        return 0
    fi
    echo "make: $advice" >&2
    exit 1
}

need_servers() {
    local missing=""
    if [ -z "${NOVEL_DATABASE_URL:-}${NOVEL_DATABASE_URL_FILE:-}" ]; then
        have mariadbd && have mariadb-install-db || missing="MariaDB"
    fi
    if [ -z "${NOVEL_REDIS_URL+set}${NOVEL_REDIS_URL_FILE:-}" ]; then
        have redis-server || missing="${missing:+$missing and }Redis"
    fi
    [ -n "$missing" ] || return 0
    install_or_explain "$SERVER_PACKAGES" "$missing not found and not installable from here. Run as root:
    apt-get install --no-install-recommends $SERVER_PACKAGES
or use servers you already have:
    NOVEL_DATABASE_URL=mysql://user:password@host:3306/database NOVEL_REDIS_URL=redis://host:6379/0 make ..."
}

need_python() {
    local python=$1
    if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        have "$python" || install_or_explain "python3 python3-venv" \
            "Python was not found. Run as root: apt-get install python3 python3-venv"
        "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
            echo "make: Python 3.11 or later is needed, $python is $("$python" -V 2>&1). Try: make PYTHON=python3.12 ..." >&2
            exit 1
        }
    fi
    "$python" -c 'import ensurepip, venv' 2>/dev/null || install_or_explain "python3-venv" \
        "Python's venv module is missing. Run as root: apt-get install python3-venv"
}

need_examples() {
    local missing=""
    have curl || missing="curl"
    have openssl || missing="${missing:+$missing }openssl"
    have php || missing="${missing:+$missing }php-cli"
    have node || missing="${missing:+$missing }nodejs"
    [ -n "$missing" ] || return 0
    install_or_explain "$missing" "the tests run the examples of docs/ingest.md, and need: $missing. Run as root:
    apt-get install --no-install-recommends $missing
or do without these tests:
    .venv/bin/python -m pytest -n 2"
}

case "${1:-}" in
    servers) need_servers ;;
    python) need_python "${2:?python executable}" ;;
    examples) need_examples ;;
    *) echo "usage: $0 servers | python PYTHON | examples" >&2; exit 2 ;;
esac
