# A machine where `make train`, `make test` and `sibe` work: docker build -t sibe . (or podman build).
FROM docker.io/library/python:3.12-slim-bookworm

# OpenGL without a display, as scripts/install_gl.sh wants it; gcc compiles the kernels on first use.
RUN apt-get update \
    && apt-get install -y --no-install-recommends \
        gcc git libc6-dev libegl1 libgl1-mesa-dri libopengl0 make \
    && rm -rf /var/lib/apt/lists/*

# Your own id, so that runs written to a mounted folder are yours: --build-arg UID=$(id -u). Root's (0) is taken already.
ARG UID=1000
RUN useradd --non-unique --uid "$UID" --create-home sibe \
    && install -d -o sibe -g sibe /home/sibe/sibe /home/sibe/sibe/runs /home/sibe/.cache
USER sibe
WORKDIR /home/sibe/sibe

# The CPU build of torch; for a GPU: --build-arg PIP_EXTRA_INDEX_URL=
ARG PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu

# Only what the installation depends on, so that a change of the code does not install again. The
# package is installed in place: its first file will do until all of it is copied.
COPY --chown=sibe:sibe pyproject.toml constraints.txt Makefile README.md LICENSE ./
COPY --chown=sibe:sibe scripts/install_gl.sh scripts/apt_install.sh scripts/
COPY --chown=sibe:sibe src/sibe/__init__.py src/sibe/
RUN PIP_NO_CACHE_DIR=1 make setup

COPY --chown=sibe:sibe . .
# The copied files may be younger than the stamp of the installation.
RUN touch .venv/.ready

ENV PATH=/home/sibe/sibe/.venv/bin:$PATH
CMD ["make", "train"]
