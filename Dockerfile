# syntax=docker/dockerfile:1
# The image of Refrain. Building the engine takes half an hour and more on two cores; its layer is kept until Cargo.toml or
# Cargo.lock change.

FROM rust:1.95-bookworm AS build
WORKDIR /src
# The addresses of a program that may lie anywhere are put in at each start: packed, their list takes 2.6 MB of memory less, and an
# engine starts 2 ms sooner. They need glibc 2.36, which this image has and not every machine.
ENV RUSTFLAGS="-C link-arg=-Wl,-z,pack-relative-relocs"
# Not rust-toolchain.toml: the image is the toolchain.
COPY Cargo.toml Cargo.lock ./
# The dependencies alone, over empty sources.
RUN mkdir -p src tests/it bench/parts \
 && echo 'fn main() {}' > src/main.rs \
 && touch src/lib.rs tests/it/main.rs bench/parts/main.rs \
 && cargo build --locked --profile dist \
 && rm -rf src tests bench
COPY src src
COPY migrations migrations
COPY pipelines pipelines
COPY openapi.yaml ./
COPY docs/problems.md docs/
# Newer than the empty sources, so that cargo sees a change.
RUN mkdir -p tests/it bench/parts \
 && touch tests/it/main.rs bench/parts/main.rs src/main.rs src/lib.rs \
 && cargo build --locked --profile dist --bin refrain \
 && install -D -m 755 target/dist/refrain /out/refrain \
 && install -d -o 10001 -g 10001 /out/data /out/sources/data

FROM debian:bookworm-slim
LABEL org.opencontainers.image.title="refrain" \
      org.opencontainers.image.description="Runs partitioned ETL jobs over HTTP so that running one twice is the same as running it once" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN groupadd --system --gid 10001 refrain \
 && useradd --system --uid 10001 --gid refrain --home-dir /data --no-create-home --shell /usr/sbin/nologin refrain
COPY --from=build /out/refrain /usr/local/bin/refrain
# Named volumes take over the owner of these folders.
COPY --from=build --chown=10001:10001 /out/data /data
COPY --from=build --chown=10001:10001 /out/sources /sources
COPY pipelines /etc/refrain/pipelines
ENV REFRAIN_LISTEN=0.0.0.0:8080 \
    REFRAIN_DATA_DIR=/data \
    REFRAIN_PIPELINES=/etc/refrain/pipelines \
    REFRAIN_SOURCE_ROOT=/sources
USER 10001:10001
WORKDIR /data
# It listens beyond the loopback, so a token comes first: docker run --rm -v …:/data refrain token new --principal … --scope …
# The SQLite file (where no database is named) and the warehouse. Source files are mounted below /sources.
VOLUME /data
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 CMD ["refrain", "healthcheck"]
ENTRYPOINT ["refrain"]
CMD ["serve"]
