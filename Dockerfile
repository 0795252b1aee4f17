# The scheduler with its kernels linked, as a user without rights.
#
#   docker build -t hived .
#   docker run -p 9096:9096 -v ./hivedscheduler.yaml:/etc/hived/hivedscheduler.yaml:ro hived
ARG PYTHON_IMAGE=python:3.12-slim

FROM ${PYTHON_IMAGE} AS build
# The compiler links the kernels; nothing of it gets into the image.
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
COPY .ci/build.lock /tmp/build.lock
RUN python -m pip install --no-cache-dir --require-hashes --requirement /tmp/build.lock
WORKDIR /src
COPY . .
RUN PYTHON=python .ci/build-image-root /opt/hived

FROM ${PYTHON_IMAGE}
COPY --from=build /opt/hived /opt/hived
# Code and linked kernels stay root's: the service loads them whatever its user is, and nobody who breaks into it changes
# them. Nothing has to be written, so the root file system may be read-only.
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /nonexistent hived
ENV PATH=/opt/hived/bin:$PATH \
    CONFIG=/etc/hived/hivedscheduler.yaml \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /tmp
EXPOSE 9096
ENTRYPOINT ["hived"]
CMD ["serve"]
