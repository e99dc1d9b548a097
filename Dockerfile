# escounts on a CPU: the page and the REST service on port 8765.
#
#   docker build -t escounts .
#   docker run --rm -p 127.0.0.1:8765:8765 -v escounts:/data escounts
#
# It listens on all addresses of the container, so a token is needed: the command prints one, or give your own
# with -e ESCOUNTS_TOKEN=… and open http://localhost:8765/#token=…
# torch from the default index brings CUDA along; for the small CPU build name the index that has it:
#   docker build --build-arg PIP_EXTRA_INDEX_URL=… -t escounts .
#
# Not built where it was written (no Docker daemon there): the same steps were run by hand in a clean virtual
# environment as an unprivileged user.

# The base image is to be named by its digest, so that two builds are the same. It is missing: no registry could be
# reached where this was written. Fill in what the first command prints (`make release-check` fails until then):
#   docker buildx imagetools inspect python:3.12-slim --format '{{.Manifest.Digest}}'
#   sed -i 's|^ARG BASE=.*|ARG BASE=python:3.12-slim@sha256:…|' Dockerfile
ARG BASE=python:3.12-slim

FROM ${BASE} AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN pip wheel --no-cache-dir --no-deps -w /wheels .

FROM ${BASE}
ARG PIP_EXTRA_INDEX_URL=""
COPY constraints.txt /tmp/
COPY --from=build /wheels /wheels
RUN wheel="$(ls /wheels/escounts-*.whl)" \
 && PIP_EXTRA_INDEX_URL="$PIP_EXTRA_INDEX_URL" pip install --no-cache-dir -c /tmp/constraints.txt "${wheel}[serve,plot]" \
 && rm -rf /wheels /tmp/constraints.txt \
 && useradd --system --uid 10001 --create-home escounts \
 && install -d -o escounts -g escounts -m 700 /data
USER escounts
ENV PYTHONUNBUFFERED=1 MPLCONFIGDIR=/tmp/matplotlib
VOLUME /data
EXPOSE 8765
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
  CMD ["python", "-c", "import json, urllib.request as r; assert json.load(r.urlopen('http://127.0.0.1:8765/healthz'))['status'] == 'ok'"]
STOPSIGNAL SIGINT
CMD ["escounts", "serve", "--host", "0.0.0.0", "--port", "8765", "--data", "/data"]
