#!/bin/sh
# Starts a PostgreSQL server for tests in a temporary folder, as an ordinary user and on a socket only that user and
# root can open. Usage: deploy/postgres.sh start | stop FOLDER. `start` prints the URL and the folder.
set -eu

find_bin() {
    for bin in /usr/lib/postgresql/*/bin; do
        [ -x "$bin/initdb" ] && { echo "$bin"; return; }
    done
    command -v initdb >/dev/null && dirname "$(command -v initdb)"
}

as_user() {
    if [ "$(id -u)" = 0 ]; then setpriv --reuid=postgres --regid=postgres --clear-groups "$@"; else "$@"; fi
}

if [ "${1:-}" = stop ]; then
    as_user "$(find_bin)/pg_ctl" -D "$2/data" -m fast -w stop >/dev/null
    rm -rf "$2"
    exit
fi

if [ -z "$(find_bin || true)" ]; then
    if [ "$(id -u)" = 0 ]; then apt-get install -y postgresql >&2; else sudo apt-get install -y postgresql >&2; fi
fi
bin=$(find_bin)
folder=$(mktemp -d /tmp/gdscore-postgres.XXXXXX)
[ "$(id -u)" = 0 ] && chown postgres:postgres "$folder"
cd "$folder"
as_user "$bin/initdb" -D "$folder/data" -U postgres --auth=trust >/dev/null
as_user "$bin/pg_ctl" -D "$folder/data" -l "$folder/log" -w -o "-c listen_addresses='' -k $folder" start >/dev/null
echo "postgresql://postgres@/postgres?host=$folder $folder"
