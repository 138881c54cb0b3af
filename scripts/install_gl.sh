#!/bin/sh
# Make sure that EGL through Mesa is there: MuJoCo renders with it on machines without a display.
set -e
missing=""
ldconfig=$(command -v ldconfig || echo /sbin/ldconfig)
$ldconfig -p 2>/dev/null | grep -q libEGL.so.1 || missing="libEGL"
# Mesa's driver: the software rasteriser, or a vendor's own EGL (NVIDIA) in its place.
ls /usr/share/glvnd/egl_vendor.d/*.json >/dev/null 2>&1 || missing="$missing driver"
find /usr/lib /usr/lib64 -name 'swrast_dri.so' -o -name 'libgallium*.so' -o -name 'libEGL_nvidia.so*' \
	2>/dev/null | grep -q . || missing="$missing driver"
[ -z "$missing" ] && exit 0

line="apt-get install -y libegl1 libgl1-mesa-dri"
if ! command -v apt-get >/dev/null; then
	echo "OpenGL for headless rendering is missing: install EGL and Mesa with your package manager" >&2
	exit 2
fi
if [ "$(id -u)" = 0 ]; then
	sudo=""
elif sudo -n true 2>/dev/null; then
	sudo="sudo"
else
	echo "OpenGL for headless rendering is missing: sudo $line" >&2
	exit 2
fi
echo "installing OpenGL for headless rendering: $line"
$sudo apt-get update -qq
DEBIAN_FRONTEND=noninteractive $sudo $line -qq >/dev/null
