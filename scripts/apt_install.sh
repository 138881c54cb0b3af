#!/bin/sh
# Install Debian packages: as root, by passwordless sudo, or not at all and one line that says what to type.
# usage: sh scripts/apt_install.sh WHAT-FOR PACKAGE…
set -e
what=$1
shift
line="apt-get install -y $*"
if ! command -v apt-get >/dev/null; then
	echo "$what is missing: install the counterpart of '$*' with your package manager" >&2
	exit 2
fi
if [ "$(id -u)" = 0 ]; then
	sudo=""
elif sudo -n true 2>/dev/null; then
	sudo="sudo"
else
	echo "$what is missing: sudo $line" >&2
	exit 2
fi
echo "installing $what: $line"
$sudo apt-get update -qq
$sudo env DEBIAN_FRONTEND=noninteractive $line -qq >/dev/null
