#!/usr/bin/env bash
# After success the servers that tests run against are there: PostgreSQL's programs, and Kafka's
# jars below $1, as tests/servers/pom.xml names them; and Chromium, which looks at the dashboard.
# Installs PostgreSQL, Chromium and Maven if they are missing and that is allowed without asking;
# nothing is started.
#
# PYTHON   the interpreter that looks for a JDK (default: python3); needs no packages
# PG_ROOT  where distributions put PostgreSQL (default: /usr/lib/postgresql)
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
. "$root/scripts/packages.sh"
folder=$1
pom=$root/tests/servers/pom.xml

fail() {
    echo "$1" >&2
    exit 1
}

has_postgres() {
    local bin
    for bin in "${PG_ROOT:-/usr/lib/postgresql}"/*/bin; do
        [ -x "$bin/initdb" ] && [ -x "$bin/postgres" ] && return
    done
    command -v initdb >/dev/null 2>&1 && command -v postgres >/dev/null 2>&1
}

has_maven() {
    command -v mvn >/dev/null 2>&1
}

# The pom is copied last: it says that the jars are complete, and which they are.
has_kafka() {
    [ -e "$folder/kafka/pom.xml" ] && [ "$(<"$folder/kafka/pom.xml")" = "$(<"$pom")" ]
}

fetch_kafka() {
    local java
    echo "Fetching Kafka's jars (about 45 MB, first time only) …"
    rm -rf "$folder/kafka"
    mkdir -p "$folder/kafka"
    java=$(PYTHONPATH="$root/src" "${PYTHON:-python3}" -m anabranch.spark.jdk)
    JAVA_HOME=$java mvn --batch-mode --quiet --strict-checksums --file "$pom" dependency:copy-dependencies \
        -DoutputDirectory="$folder/kafka" -DincludeScope=runtime -Dstyle.color=never || return
    cp "$pom" "$folder/kafka/pom.xml"
}

if ! has_postgres; then
    echo "No PostgreSQL server found."
    { apt_install_first postgresql && has_postgres; } ||
        fail "The tests need a PostgreSQL server: apt-get install postgresql"
fi
if ! command -v chromium >/dev/null 2>&1; then
    echo "No Chromium found."
    { apt_install_first chromium && command -v chromium >/dev/null 2>&1; } ||
        fail "The tests need a browser: apt-get install chromium"
fi
has_kafka && exit
if ! has_maven; then
    echo "No Maven found."
    { apt_install_first maven && has_maven; } ||
        fail "The tests need Maven to fetch a Kafka broker: apt-get install maven"
fi
fetch_kafka || fail "Kafka's jars could not be fetched; the tests need them in $folder/kafka."
