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
RUN go mod download
COPY . .
ARG VERSION=devel
RUN mkdir -p /out/bin && CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w -funcalign=4 -X $(go list -m)/internal/cli.stamped=$VERSION" -o /out/bin/ ./cmd/... \
 && mkdir -m 1777 /out/tmp

FROM scratch
COPY --from=build /out /
ENV THREAD_DIR=/thread
WORKDIR /thread
ENTRYPOINT ["/bin/thread"]
CMD ["--help"]
