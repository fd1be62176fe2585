# Two images that are the same: the last stage compiles the daemon,
#
#   docker build --build-arg VERSION=v1.2.3 --build-arg COMMIT=$(git rev-parse HEAD) .
#
# and "prebuilt" takes one that is compiled already, for amd64 or arm64, without
# any base image: `make image` makes it with buildah.

# What both are: one static binary and the certificates that it trusts. No shell,
# no files to write, no privileges; the root file system may be read-only.
FROM scratch AS runtime
ENV HEALTH_ADDRESS=:8095
EXPOSE 8095
USER 65532:65532
HEALTHCHECK --interval=30s --timeout=6s --start-period=10s CMD ["/omni-infra-provider-oxide", "healthcheck"]
ENTRYPOINT ["/omni-infra-provider-oxide"]

FROM runtime AS prebuilt
ARG TARGETARCH=amd64
COPY --chmod=0444 ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --chmod=0555 linux-$TARGETARCH/omni-infra-provider-oxide /omni-infra-provider-oxide

FROM --platform=$BUILDPLATFORM golang:1.26 AS build
WORKDIR /src

COPY go.mod go.sum ./
RUN go mod download

COPY . .
ARG VERSION=dev
ARG COMMIT=unknown
ARG TARGETOS=linux
ARG TARGETARCH=amd64
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -buildvcs=false \
	-ldflags "-s -w \
	-X github.com/oxidecomputer/omni-infra-provider-oxide/internal/version.version=$VERSION \
	-X github.com/oxidecomputer/omni-infra-provider-oxide/internal/version.commit=$COMMIT" \
	-o /omni-infra-provider-oxide ./cmd/omni-infra-provider-oxide

FROM runtime
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /omni-infra-provider-oxide /omni-infra-provider-oxide
