# The commands of the house; each is a few lines of shell in scripts/. `make help` lists them.
.DEFAULT_GOAL := build
.PHONY: build install deb bundle demo test test-full test-cluster bench format lint clean help

PREFIX ?= /usr/local
JOBS ?= $(shell nproc)
export JOBS

build:      ## install what is missing (scripts/setup) and build build/triax
	@scripts/build triax

install:    ## install into PREFIX (default /usr/local); DESTDIR is put before it
	@scripts/build all
	@cmake --install build --prefix "$(PREFIX)"

deb:        ## Debian packages triax and libtriax-dev in build/
	@scripts/make_deb

bundle: build ## dist/triax-<version>-linux-x86_64.tar.gz, for machines where nothing can be installed
	@scripts/build test_device test_kernels_cuda || echo "bundle: without the tests of a GPU" >&2
	@scripts/make_bundle

demo: build ## train a small GPT on a 2 x 2 x 2 grid, stop, resume on another, look at the result
	@scripts/setup --demo
	@scripts/demo

test:       ## unit tests, small grids, and the same under the address and thread sanitizers
	@scripts/test quick

test-full:  ## everything that takes longer: the whole matrix of grids
	@scripts/test full

test-cluster: ## mpirun on simulated hosts and a Slurm of one node, all in namespaces; as root
	@scripts/test cluster

bench: build ## what this machine does: kernels and steps
	@scripts/setup --bench
	@build/triax bench step

format:     ## clang-format on all sources
	@scripts/lint --format

lint:       ## clang-format (check only) and clang-tidy; FILES="a.cpp b.cpp" for some of them
	@scripts/lint $(FILES)

clean:      ## remove what was built (runs/ stays)
	rm -rf build

help:       ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12
