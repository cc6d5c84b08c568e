# One image for the operator, the registry and the agent runner: the command picks which.
# How to build it, pin its base, use a mirror and read its SBOM: docs/guides/image.md. `make image` does it all.
#
# No `syntax` line: it would fetch a frontend from Docker Hub, and BuildKit's own knows all that is used here.

# For a build that is the same tomorrow, name the base by digest: --build-arg BASE_IMAGE=python@sha256:…
# Any glibc image with Python 3.11 to 3.13 at `python3` and a shell will do.
ARG BASE_IMAGE=python:3.11-slim-bookworm
# Where the base has no ensurepip: its -dev variant, with the same Python at the same path.
ARG BUILDER_IMAGE=${BASE_IMAGE}

FROM ${BUILDER_IMAGE} AS dependencies
USER 0
WORKDIR /build
ENV LANG=C.UTF-8 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_NO_CACHE_DIR=1
RUN python3 -m venv tools && python3 -m venv --without-pip /opt/toolcrib
COPY requirements/build.txt requirements/runtime.txt requirements/
# pip's own configuration and certificates come as secrets: they are in no layer, no label and no build argument.
# Bytecode is compiled here since the root is read-only later; unchecked, since nothing may change it there. Packages'
# own tests go; of what nobody imports (a second client in the package kubernetes) no bytecode is made.
RUN --mount=type=secret,id=pip.conf --mount=type=secret,id=ca.crt set -eu; \
    if [ -s /run/secrets/pip.conf ]; then export PIP_CONFIG_FILE=/run/secrets/pip.conf; fi; \
    if [ -s /run/secrets/ca.crt ]; then export PIP_CERT=/run/secrets/ca.crt; fi; \
    tools/bin/pip install --quiet --only-binary :all: --require-hashes -r requirements/build.txt; \
    tools/bin/pip --python /opt/toolcrib/bin/python install --quiet --no-compile --only-binary :all: \
        --require-hashes -r requirements/runtime.txt; \
    find /opt/toolcrib/lib -depth -type d -name tests -exec rm -rf {} +; \
    /opt/toolcrib/bin/python -m compileall -q -j 0 --invalidation-mode unchecked-hash -x /kubernetes/aio/ /opt/toolcrib/lib

FROM dependencies AS build
COPY pyproject.toml README.md LICENSE ./
COPY core core
COPY operator operator
COPY registry_api registry_api
COPY agent_runner agent_runner
COPY cli cli
COPY client client
COPY examples/heist examples/heist
# Into a root of its own, so that the image has it in a small layer: an upgrade pulls no dependency again. Found by
# name, not by path, so that no `direct_url.json` tells where it was built.
RUN set -eu; \
    tools/bin/python -m hatchling build -t wheel -d dist; \
    (cd client && ../tools/bin/python -m hatchling build -t wheel -d ../dist); \
    tools/bin/pip --python /opt/toolcrib/bin/python install --quiet --no-compile --no-deps --no-index \
        --no-warn-script-location --find-links dist --root /own toolcrib toolcrib-client; \
    /opt/toolcrib/bin/python -m compileall -q -j 0 --invalidation-mode unchecked-hash /own/opt/toolcrib/lib; \
    cp -a /own/opt/toolcrib/. /opt/toolcrib/; \
    tools/bin/pip --python /opt/toolcrib/bin/python check

# A stage of its own, so that it is rebuilt only when the requirements, the version or the files of others change.
FROM dependencies AS materials
COPY pyproject.toml core/toolcrib/version.py ./
COPY cli/toolcrib_cli/local/api_docs/assets cli/toolcrib_cli/local/api_docs/assets
COPY registry_api/toolcrib_registry/model registry_api/toolcrib_registry/model
COPY requirements/sbom.py requirements/sbom.py
RUN --mount=type=bind,from=base,target=/base \
    tools/bin/python requirements/sbom.py --python /opt/toolcrib/bin/python --root /base > sbom.cdx.json

FROM ${BASE_IMAGE} AS base
USER 0

FROM base AS image
# What only an installer needs goes, and so does every setuid bit; Debian's own copy of the bytecode is kept, and
# the official Python image, which has none, gets it: a read-only root cannot write it later.
RUN set -eu; \
    python3 -c 'import compileall, re, sysconfig; compileall.compile_dir(sysconfig.get_path("stdlib"), quiet=2, \
        rx=re.compile(r"/(site-packages|dist-packages|test|tests|idlelib|lib2to3|turtledemo|ensurepip)/"))'; \
    libraries="$(python3 -c 'import sysconfig; print(*{sysconfig.get_path(n) for n in ("stdlib", "purelib")})')"; \
    for library in $libraries /usr/lib/python3/dist-packages; do \
        rm -rf "$library"/ensurepip "$library"/pip "$library"/pip-* "$library"/setuptools "$library"/setuptools-* \
            "$library"/wheel "$library"/wheel-* "$library"/pkg_resources "$library"/_distutils_hack \
            "$library"/site-packages/pip "$library"/site-packages/pip-*; \
    done; \
    rm -rf /usr/share/python-wheels /usr/local/bin/pip* /usr/bin/pip* /usr/local/bin/wheel /var/lib/apt/lists/* \
        /var/cache/* ~/.cache; \
    find / -xdev -type f -perm /6000 -exec chmod a-s {} +; \
    echo 'toolcrib:x:65532:65532:Toolcrib:/tmp:/usr/sbin/nologin' >> /etc/passwd; \
    echo 'toolcrib:x:65532:' >> /etc/group
COPY --from=dependencies /opt/toolcrib /opt/toolcrib
COPY --from=materials /build/sbom.cdx.json /usr/share/toolcrib/sbom.cdx.json
COPY LICENSE /usr/share/toolcrib/LICENSE
COPY --from=build /own/opt/toolcrib /opt/toolcrib

ENV PATH=/opt/toolcrib/bin:/usr/local/bin:/usr/bin:/bin \
    LANG=C.UTF-8 \
    HOME=/tmp \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    PYTHONNOUSERSITE=1
WORKDIR /
USER 65532:65532
STOPSIGNAL SIGTERM
# Kubernetes has probes of its own and does not read this; docker and compose do.
HEALTHCHECK --interval=30s --timeout=5s --start-period=30s --retries=3 CMD ["toolcrib", "health"]
ENTRYPOINT ["toolcrib"]
CMD ["--help"]

# Last, so that a new revision rebuilds nothing.
ARG VERSION=unknown
ARG REVISION=unknown
ARG CREATED=unknown
ARG SOURCE=https://github.com/toolcrib/toolcrib
LABEL org.opencontainers.image.title="Toolcrib" \
      org.opencontainers.image.description="Tool governance for AI agents on Kubernetes: operator, registry and agent runner" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}" \
      org.opencontainers.image.source="${SOURCE}" \
      org.opencontainers.image.licenses="Apache-2.0"
