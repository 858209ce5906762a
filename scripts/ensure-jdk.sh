#!/usr/bin/env bash
# After success a JDK 17 or newer is where anabranch.spark.jdk finds it at run time: JAVA_HOME,
# PATH or JVM_ROOT. Installs one if there is none and that is allowed without asking.
#
# PYTHON    the interpreter that looks (default: python3); needs no packages
# JVM_ROOT  where distributions put JDKs (default: /usr/lib/jvm)
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
. "$root/scripts/packages.sh"

found() {
    PYTHONPATH="$root/src" "${PYTHON:-python3}" -m anabranch.spark.jdk \
        "${JVM_ROOT:-/usr/lib/jvm}" >/dev/null 2>&1
}

install_jdk() {
    # Minimal images lack this directory, without which the package fails to configure.
    can_apt && as_root mkdir -p /usr/share/man/man1
    apt_install_first openjdk-17-jre-headless openjdk-21-jre-headless
}

found && exit
echo "No JDK 17 or newer found."
install_jdk && found && exit
echo "anabranch needs a JDK 17 or newer: apt-get install openjdk-17-jre-headless" \
    "(or dnf install java-17-openjdk-headless), or set JAVA_HOME." >&2
exit 1
