FROM --platform=$BUILDPLATFORM golang:1.26 AS build
WORKDIR /src

COPY go.mod go.sum ./
RUN go mod download

COPY . .
ARG VERSION=dev
ARG COMMIT=unknown
ARG TARGETOS
ARG TARGETARCH
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -buildvcs=false \
	-ldflags "-s -w \
	-X github.com/oxidecomputer/omni-infra-provider-oxide/internal/version.version=$VERSION \
	-X github.com/oxidecomputer/omni-infra-provider-oxide/internal/version.commit=$COMMIT" \
	-o /omni-infra-provider-oxide ./cmd/omni-infra-provider-oxide

# One static binary and the certificates that it trusts: no shell, no files to
# write, no privileges.
FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /omni-infra-provider-oxide /omni-infra-provider-oxide
USER 65532:65532
ENTRYPOINT ["/omni-infra-provider-oxide"]
