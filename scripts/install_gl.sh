#!/bin/sh
# Make sure that EGL through Mesa is there: MuJoCo renders with it on machines without a display.
set -e
missing=""
libraries=$($(command -v ldconfig || echo /sbin/ldconfig) -p 2>/dev/null)
echo "$libraries" | grep -q 'libEGL\.so\.1' || missing=yes
# PyOpenGL loads the functions themselves from one of these; libegl1 brings neither.
echo "$libraries" | grep -qE 'libOpenGL\.so\.0|libGL\.so\.1' || missing=yes
# A driver behind EGL: Mesa's software rasteriser, or a vendor's own (NVIDIA).
find /usr/lib /usr/lib64 \( -name 'swrast_dri.so' -o -name 'libgallium*.so' -o -name 'libEGL_nvidia.so*' \) \
	2>/dev/null | grep -q . || missing=yes
[ -z "$missing" ] && exit 0
exec sh "$(dirname "$0")/apt_install.sh" "OpenGL for headless rendering" libegl1 libgl1-mesa-dri libopengl0
