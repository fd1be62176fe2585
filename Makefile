# make alone prints the targets. Only Go and make are needed; the tools for
# generating and linting are built from source, at the versions that
# hack/tools and hack/lint pin.

GO      ?= go
PKG     ?= ./...
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
COMMIT  ?= $(shell git rev-parse HEAD 2>/dev/null || echo unknown)

MODULE  := github.com/oxidecomputer/omni-infra-provider-oxide
LDFLAGS := -s -w -X $(MODULE)/internal/version.version=$(VERSION) -X $(MODULE)/internal/version.commit=$(COMMIT)
BUF     := $(GO) tool -modfile=hack/tools/go.mod buf
LINT    := $(GO) tool -modfile=hack/lint/go.mod golangci-lint

.DEFAULT_GOAL := help

.PHONY: help
help: ## Print the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: build ## Watch the daemon work against a simulated rack and Omni (options: ARGS=...)
	bin/simulator demo $(ARGS)

.PHONY: build
build: ## Build the daemon and the simulator into bin/
	CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' -o bin/ ./cmd/...

# The race detector needs a C compiler. What tests the real binaries is not run
# with it: the daemon is a process of its own there, and the simulators beside it
# are tested with it in their own packages. Those tests mostly wait.
.PHONY: test
test: ## Run all tests, with the race detector where there is a C compiler (PKG=./..., TESTFLAGS=...)
	@all=$$($(GO) list $(PKG)) || exit 1; \
	real=$$(echo "$$all" | grep -F '$(MODULE)/cmd/' || true); \
	rest=$$(echo "$$all" | grep -vF '$(MODULE)/cmd/' || true); \
	failed=0; race=-race; cgo=1; \
	if ! command -v "$$($(GO) env CC | cut -d ' ' -f 1)" >/dev/null 2>&1; then \
		echo "No C compiler here: the tests run without the race detector."; race=; cgo=0; \
	fi; \
	if [ -n "$$real" ]; then \
		echo "$(GO) test $(TESTFLAGS)" $$real; \
		CGO_ENABLED=0 $(GO) test -timeout 30m $(TESTFLAGS) $$real || failed=1; \
	fi; \
	if [ -n "$$rest" ]; then \
		echo "$(GO) test $$race $(TESTFLAGS)" $$(echo "$$rest" | wc -l) packages; \
		CGO_ENABLED=$$cgo $(GO) test $$race -timeout 45m $(TESTFLAGS) $$rest || failed=1; \
	fi; \
	exit $$failed

.PHONY: crash
crash: ## Kill the daemon before and after every call that it makes, which takes most of an hour
	OIPO_CRASH=full OIPO_CRASH_SITES=$${OIPO_CRASH_SITES:-6} $(GO) test -count=1 -v -timeout 6h -run '^TestKillsAtAnyCall$$' ./cmd/omni-infra-provider-oxide/

.PHONY: storm
storm: ## Let random faults loose on machines that come and go (OIPO_STORM=x8 random seeds or seeds, OIPO_STORM_SIZE=300)
	OIPO_STORM=$${OIPO_STORM:-x8} OIPO_STORM_SIZE=$${OIPO_STORM_SIZE:-300} \
		$(GO) test -count=1 -v -timeout 3h -run '^TestStorm' ./internal/provider/ ./cmd/omni-infra-provider-oxide/

.PHONY: week
week: ## Let the daemon live for a simulated week with thousands of machines, which takes long (OIPO_WEEK_HOURS, OIPO_WEEK_BATCH)
	OIPO_WEEK_HOURS=$${OIPO_WEEK_HOURS:-168} OIPO_WEEK_BATCH=$${OIPO_WEEK_BATCH:-8} \
		$(GO) test -count=1 -v -timeout 3h -run '^TestAWeekPasses' ./internal/provider/

.PHONY: break
break: ## Break the real binary's link to Omni after 16 minutes, when the SDK's Run ends by it
	OIPO_BREAK=16m $(GO) test -count=1 -v -timeout 1h -run '^TestABrokenLink' ./cmd/omni-infra-provider-oxide/

.PHONY: crowd
crowd: ## Have fifty machines wait for quota and ten for a subnet, beside twenty that are well, for an hour
	OIPO_CROWD=on $(GO) test -count=1 -v -timeout 30m -run '^TestManyThatWaitCostWhatOneCosts$$' ./internal/provider/

.PHONY: secrets
secrets: ## Look for secrets in all that is printed, stored and served while each kind of fault strikes
	OIPO_SECRETS=full $(GO) test -count=1 -v -timeout 30m -run '^TestNoSecretIsEverSeen$$' ./cmd/omni-infra-provider-oxide/

.PHONY: lint
lint: ## Check code and protobuf files with the linters, writing nothing
	$(LINT) run $(PKG)
	$(BUF) lint api

.PHONY: lint-fix
lint-fix: ## Mend what the linters can mend by themselves (check: lint)
	$(LINT) run --fix $(PKG)

.PHONY: fmt
fmt: ## Format the code
	$(LINT) fmt

.PHONY: fmt-check
fmt-check: ## Check that the code is formatted
	$(LINT) fmt --diff

.PHONY: generate
generate: ## Generate code from the protobuf files, and pages and examples from the code
	$(BUF) generate api --template api/buf.gen.yaml
	fresh=$$(mktemp -d) && trap 'rm -rf "$$fresh"' EXIT && $(GO) build -o "$$fresh/daemon" ./cmd/omni-infra-provider-oxide && \
	"$$fresh/daemon" docs generate internal/docs && \
	"$$fresh/daemon" machine-class example --name oxide-all-fields > hack/examples/machine-class-all-fields.yaml

.PHONY: generate-check
generate-check: ## Check that what is generated is what it is generated from
	@fresh=$$(mktemp -d) && trap 'rm -rf "$$fresh"' EXIT && $(BUF) generate api --template api/buf.gen.yaml -o "$$fresh" && \
	stale=0 && for file in $$( (cd "$$fresh" && find . -type f; cd - >/dev/null && find . -name '*.pb.go') | sort -u); do \
		cmp -s "$$fresh/$$file" "$$file" || { echo "$$file is not what its protobuf file says: run make generate"; stale=1; }; \
	done && $(GO) build -o "$$fresh/daemon" ./cmd/omni-infra-provider-oxide && \
	"$$fresh/daemon" docs generate "$$fresh/docs" && for page in "$$fresh"/docs/*.md; do \
		cmp -s "$$page" "internal/docs/$${page##*/}" || \
			{ echo "internal/docs/$${page##*/} is not what the code says: run make generate"; stale=1; }; \
	done; \
	"$$fresh/daemon" machine-class example --name oxide-all-fields | cmp -s - hack/examples/machine-class-all-fields.yaml || \
		{ echo "hack/examples/machine-class-all-fields.yaml is not what the code says: run make generate"; stale=1; }; \
	exit $$stale

.PHONY: tidy
tidy: ## Make go.mod and go.sum those of the code
	$(GO) mod tidy

.PHONY: tidy-check
tidy-check: ## Check that go.mod and go.sum are those of the code
	$(GO) mod tidy -diff

.PHONY: image
image: ## Build the container image as bin/image-ARCH.tar with buildah, from no base image (ARCH=amd64)
	hack/container/build bin/image-$(or $(ARCH),amd64).tar $(or $(ARCH),amd64) $(VERSION) $(COMMIT)

.PHONY: kubernetes-check
kubernetes-check: ## Build the manifests and hold them against Kubernetes' types and the daemon's settings
	cd hack/kubernetes && $(GO) test -count=1 ./...

.PHONY: man
man: ## Write the manual pages of the daemon and its commands into bin/man
	rm -rf bin/man && mkdir -p bin && CGO_ENABLED=0 $(GO) run -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' ./cmd/omni-infra-provider-oxide docs man bin/man

.PHONY: packages
packages: man ## Build the deb and the rpm into bin/packages (ARCHES="amd64 arm64")
	hack/packaging/build $(VERSION) $(COMMIT) $(or $(ARCHES),amd64 arm64)

.PHONY: packages-check
packages-check: packages ## Build the packages and look into them
	hack/packaging/check $(VERSION)

.PHONY: check
check: ## Run everything that CI runs: build, vet, all tests, generated code, linters, documents and the demo
	.ci/run

.PHONY: docs-check
docs-check: ## Check that what the documents name is there
	hack/docs-check

.PHONY: clean
clean: ## Remove what was built
	rm -rf bin
