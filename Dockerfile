# An image with nothing but the program:
#
#   docker build -t thread .
#   docker run --rm -v "$PWD/inbox:/thread" --user "$(id -u)" thread info
#
# It has no shell, and handlers are run by one. To run handlers, copy the program
# into an image that has what they need:
#
#   COPY --from=thread /bin/thread /bin/thread

FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=devel
RUN CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w -funcalign=4 -X main.stamped=$VERSION" -o /out/bin/thread ./cmd/thread \
 && mkdir -m 1777 /out/tmp

FROM scratch
COPY --from=build /out /
ENV THREAD_DIR=/thread
WORKDIR /thread
ENTRYPOINT ["/bin/thread"]
CMD ["--help"]
