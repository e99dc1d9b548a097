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

# The base image is named by the digest of its index (all architectures), so that two builds begin with the same bytes.
# No registry could be reached where this was written. The digest is the newest one that public Dockerfiles, kept in a
# store of public repositories, name together: ten files of unrelated projects, among them arjoma/universal-email-mcp
# and Gr33ndev/OpenAmpere, give it for 3.12-slim, 3.12.15-slim or 3.12.15-slim-trixie (Python 3.12.15 on Debian 13), in
# October 2026. Nobody has built with it yet. It brings Debian as it was on that day; renew
# it with each release, by what the first of these prints:
#   docker buildx imagetools inspect python:3.12-slim-trixie --format '{{.Manifest.Digest}}'
#   sed -i 's|^ARG BASE=.*|ARG BASE=python:3.12.…-slim-trixie@sha256:…|' Dockerfile
ARG BASE=python:3.12.15-slim-trixie@sha256:a6e34c598f2467ed0e9a8d349809fcd8b5c603269512df273a0bb1784edc11b1

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
