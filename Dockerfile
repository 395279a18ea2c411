# The official image with the extension installed and preloaded; CREATE EXTENSION is left to do.
#   docker build --build-arg PG_MAJOR=15 -t postgres-jobs:15 .
ARG PG_MAJOR=15

FROM rust:1.95-slim-bookworm AS rust

FROM postgres:${PG_MAJOR}-bookworm AS build
ARG PG_MAJOR
ENV CARGO_HOME=/usr/local/cargo RUSTUP_HOME=/usr/local/rustup PATH=/usr/local/cargo/bin:$PATH
COPY --from=rust /usr/local/cargo /usr/local/cargo
COPY --from=rust /usr/local/rustup /usr/local/rustup
# The headers must be those of the server in the image, whichever minor version that is.
# hadolint ignore=DL3008
RUN apt-get update && \
    apt-get install -y --no-install-recommends build-essential clang libclang-dev pkg-config "postgresql-server-dev-$PG_MAJOR" && \
    rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY . .
RUN make install PG_CONFIG="/usr/lib/postgresql/$PG_MAJOR/bin/pg_config" DESTDIR=/installed

# The program `jobs`, for workers and the console:
#   docker build --target worker -t postgres-jobs-worker .
FROM rust AS build-worker
WORKDIR /source
COPY . .
RUN packaging/program /installed/jobs

FROM debian:bookworm-slim AS worker
# Process 1 inherits what commands leave behind, and has to reap it.
# hadolint ignore=DL3008
RUN apt-get update && \
    apt-get install -y --no-install-recommends tini && \
    rm -rf /var/lib/apt/lists/*
COPY --from=build-worker /installed/jobs /usr/local/bin/
USER 65534
ENTRYPOINT ["tini", "--", "jobs"]

FROM postgres:${PG_MAJOR}-bookworm
COPY --from=build /installed/ /
# What the image makes postgresql.conf of when it creates a cluster.
RUN echo "shared_preload_libraries = 'jobs'" >>/usr/share/postgresql/postgresql.conf.sample
