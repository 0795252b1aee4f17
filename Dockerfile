# The scheduler with its kernels already compiled, as a user without rights.
#
#   docker build -t hived .
#   docker run -p 9096:9096 -v ./hivedscheduler.yaml:/etc/hived/hivedscheduler.yaml:ro hived
ARG PYTHON_IMAGE=python:3.12-slim

FROM ${PYTHON_IMAGE} AS build
COPY .ci/build.lock /tmp/build.lock
RUN python -m pip install --no-cache-dir --require-hashes --requirement /tmp/build.lock
WORKDIR /src
COPY . .
RUN PYTHON=python .ci/build-image-root /opt/hived

FROM ${PYTHON_IMAGE}
COPY --from=build /opt/hived /opt/hived
# The compiled kernels stay root's: the service loads them whatever its user is, and nobody who breaks into it changes them.
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /nonexistent hived
ENV PATH=/opt/hived/bin:$PATH \
    CONFIG=/etc/hived/hivedscheduler.yaml \
    NUMBA_CPU_NAME=generic \
    NUMBA_CACHE_DIR=/opt/hived/kernels \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /tmp
EXPOSE 9096
ENTRYPOINT ["hived"]
CMD ["serve"]
