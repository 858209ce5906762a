# Sourced: installing Debian packages where that is allowed without asking.

# Runs its arguments as root; fails without a prompt where that is not possible.
as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n -- "$@"; fi
}

can_apt() {
    command -v apt-get >/dev/null 2>&1 && as_root true >/dev/null 2>&1
}

# Installs the first of the named packages that the distribution has. apt's own words appear
# only if it fails.
apt_install_first() {
    can_apt || return 1
    apt_quietly update || return 1
    local package
    for package in "$@"; do
        apt-cache show "$package" >/dev/null 2>&1 || continue
        echo "Installing $package …"
        apt_quietly install --yes --no-install-recommends "$package"
        return
    done
    return 1
}

apt_quietly() {
    local output
    output=$(as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq "$@" 2>&1) && return
    printf '%s\n' "$output" >&2
    return 1
}
