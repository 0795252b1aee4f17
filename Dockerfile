# The scheduler with its kernels already compiled, as a user without rights.
#
#   docker build -t hived .
#   docker run -p 9096:9096 -v ./hivedscheduler.yaml:/etc/hived/hivedscheduler.yaml:ro hived
ARG PYTHON_IMAGE=python:3.12-slim

FROM ${PYTHON_IMAGE} AS build
RUN python -m pip install --no-cache-dir build "hatchling>=1.27"
WORKDIR /src
COPY . .
RUN PYTHON=python .ci/build-image-root /opt/hived

FROM ${PYTHON_IMAGE}
COPY --from=build /opt/hived /opt/hived
# numba wants to write to the folder of its cache, even where everything is compiled.
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /nonexistent hived \
    && chown --recursive hived:hived /opt/hived/kernels
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
