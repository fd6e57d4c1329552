# An image with nothing but the programs:
#
#   docker build -t thread .
#   docker run --rm -v "$PWD/inbox:/thread" --user "$(id -u)" thread info
#
# It has no shell, and handlers are run by one. To run handlers, copy them
# into an image that has what they need:
#
#   COPY --from=thread /bin/thread* /bin/

FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
COPY bridge/go.mod bridge/go.sum bridge/
RUN go mod download && cd bridge && go mod download
COPY . .
ARG VERSION=devel
RUN mkdir -p /out/bin && CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w -funcalign=4 -X $(go list -m)/internal/cli.stamped=$VERSION" -o /out/bin/ ./cmd/... \
 && mkdir -m 1777 /out/tmp

# With thread-bridge: docker build --target bridge -t thread-bridge .
FROM build AS build-bridge
ARG VERSION=devel
RUN cd bridge && CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w -funcalign=4 -X thread/internal/cli.stamped=$VERSION" -o /out/bin/ ./cmd/thread-bridge

FROM scratch AS bridge
COPY --from=build-bridge /out /
ENV THREAD_DIR=/thread
ENV PATH=/bin
WORKDIR /thread
ENTRYPOINT ["/bin/thread-bridge"]
CMD ["--help"]

FROM scratch
COPY --from=build /out /
ENV THREAD_DIR=/thread
WORKDIR /thread
ENTRYPOINT ["/bin/thread"]
CMD ["--help"]
