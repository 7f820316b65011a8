#!/usr/bin/env bash
# Set up what `make` needs: packages of Debian or Ubuntu where that may be, and the virtual environment .venv with the
# versions of requirements.lock. Done in a moment when all is there.
#
# With WITH=region also what a whole distributed ledger on this machine needs.
#
# What cannot be had is said in one line: without it there are no real guests, or no distributed ledger. With CI=true that
# is a failure.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PATH=$PATH:/usr/sbin:/sbin DEBIAN_FRONTEND=noninteractive PIP_DISABLE_PIP_VERSION_CHECK=1

LOG=.cache/set-up.log
STAMP=.venv/.set-up

main() {
  mkdir -p .cache
  local lacking
  find_python
  lacking=$(packages_lacking)
  if [ -n "$lacking" ]; then install "$lacking" "real guests"; fi
  if [ "${WITH:-}" = region ]; then
    lacking=$(region_packages_lacking)
    if [ -n "$lacking" ]; then install "$lacking" "distributed ledger"; fi
  fi
  environment
}

# The oldest that will do is 3.11; PYTHON= names another.
find_python() {
  local candidate
  for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11}; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2> /dev/null; then
      python=$("$candidate" -c 'import sys; print(sys.executable)')
      return
    fi
  done
  if may_install && apt-cache show python3.11 &> /dev/null && install "python3.11 python3.11-venv python3.11-dev" ledger; then
    python=$(command -v python3.11)
    return
  fi
  fail "Python 3.11 or newer is needed; name one with PYTHON="
}

# Debian's names of what is missing: for the environment, and for real guests.
packages_lacking() {
  local version=
  if [[ $python == /usr/bin/* ]]; then version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])'); fi
  "$python" -c 'import ensurepip, venv' 2> /dev/null || echo "python$version-venv"
  if [ "$(uname -m)" != x86_64 ]; then return; fi # elsewhere the tiny guest would not run
  command -v libvirtd > /dev/null || echo libvirt-daemon-system
  compgen -G '/usr/lib*/*/libvirt/connection-driver/libvirt_driver_qemu.so' > /dev/null ||
    compgen -G '/usr/lib*/libvirt/connection-driver/libvirt_driver_qemu.so' > /dev/null || echo libvirt-daemon-driver-qemu
  command -v qemu-system-x86_64 > /dev/null || echo qemu-system-x86
  command -v qemu-img > /dev/null || echo qemu-utils
  command -v xz > /dev/null || echo xz-utils
  # libvirt-python comes as source only
  command -v pkg-config > /dev/null || echo pkg-config
  pkg-config --exists libvirt 2> /dev/null || echo libvirt-dev
  command -v cc > /dev/null || echo gcc libc6-dev
  [ -e "$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h" ] || echo "python$version-dev"
}

# What a distributed ledger needs on one machine: PostgreSQL 15 and Java 17, or newer, and Maven, which fetches Kafka.
region_packages_lacking() {
  local newest
  newest=$(find /usr/lib/postgresql -maxdepth 1 -mindepth 1 -printf '%f\n' 2> /dev/null | sort -n | tail -1)
  [ "${newest:-0}" -ge 15 ] || echo postgresql
  java -version 2>&1 | grep -qE 'version "(1[7-9]|[2-9][0-9])' || echo default-jre-headless
  command -v mvn > /dev/null || echo maven
}

may_install() {
  command -v apt-get > /dev/null && { [ "$(id -u)" = 0 ] || sudo -n true 2> /dev/null; }
}

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n DEBIAN_FRONTEND=noninteractive "$@"; fi
}

install() {
  local names
  names=$(echo $1) # on one line
  if ! may_install; then
    lack "Not installed, for want of apt-get or of root's rights: $names." "$2"
  else
    echo "Installing $names" >&2
    { as_root apt-get -qq -o DPkg::Lock::Timeout=300 update || true # old lists may do
      as_root apt-get -qq -o DPkg::Lock::Timeout=300 install -y --no-install-recommends $names; } >> $LOG 2>&1 < /dev/null ||
      lack "apt-get could not install $names: $(grep '^E:' $LOG | tail -1) (see $LOG)." "$2"
  fi
}

environment() {
  local extras=distributed,test wanted
  if pkg-config --exists libvirt 2> /dev/null && command -v cc > /dev/null; then extras=libvirt,$extras; fi
  wanted="$extras $(cat requirements.lock pyproject.toml deploy/set-up.sh | sha256sum)"
  if [ "$(cat $STAMP 2> /dev/null || true)" = "$wanted" ] && .venv/bin/python -c '' 2> /dev/null; then return; fi
  echo "Installing the Python packages of requirements.lock into .venv" >&2
  exec 9> .cache/.set-up.lock
  flock 9
  if ! .venv/bin/python -m pip --version &> /dev/null; then
    "$python" -m venv --clear .venv >> $LOG 2>&1 || fail "$python -m venv failed (see $LOG)"
  fi
  pip setuptools && pip --no-build-isolation -e ".[distributed,test]" || fail "pip failed: $(grep -iE "^ *(error|.*Error)" $LOG | tail -1) (see $LOG)"
  if [[ $extras == libvirt* ]] && ! pip --no-build-isolation -e ".[$extras]"; then
    lack "libvirt-python could not be built (see $LOG)." "real guests"
  fi
  echo "$wanted" > $STAMP
}

pip() {
  .venv/bin/python -m pip install --quiet -c requirements.lock "$@" >> $LOG 2>&1 < /dev/null
}

lack() {
  if [ "${CI:-}" = true ]; then fail "$1"; fi
  echo "$1 There can be no $2 without." >&2
}

fail() {
  echo "set-up: $1" >&2
  exit 1
}

main
