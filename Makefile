# make build   the switch and the laboratory, in target/release; PROFILE=packaged: as packages have them, in target/packaged
# make install what was built, below $(DESTDIR)$(PREFIX) (/usr/local): programs, C library, manual pages, completions, systemd unit; make uninstall
# make demo    see a switch at work
# make test    everything that must pass before a change lands (includes make check)
# make nightly whatever of this has not passed on this commit: make test, the experiments with the program that users install, licences and advisories of dependencies, AddressSanitizer, ThreadSanitizer, guests that stand still for a minute, and policy judged again for an hour, and messages repeated more often
# make shake   the tests that were built, on a machine that has no time for them; each call goes on where the last one ended
# make soak    all kinds of ports under a fault a second, for RINGWAY_SOAK_SECONDS (60); RINGWAY_SEED repeats the faults of a run
# make python  the Python package, as a wheel in target/python/wheels
# make guest-driver   the driver of Linux guests (guest/linux/ringway_e1000.ko); for another kernel: KDIR=FOLDER; make guest-driver-package: its Debian package, in target
# make guests  everything that happens to virtual machines
# make check   format, lints, documentation
# make deps    install what the tests and the demo need (Debian packages, as root)

SHELL := /bin/bash
CARGO ?= cargo
# The loom, fuzz and sanitizer builds use flags of their own and so folders of their own.
LOOM_TARGET := target/loom
# Where memory that others write is handled.
PORTS := ringway-port ringway-port-process ringway-port-vhost-user ringway-port-e1000 ringway-port-device ringway-port-stream ringway-port-tests
SANITIZED := ringway-memory ringway-switch $(PORTS)
# Where threads meet.
THREADED := ringway-memory ringway-switch ringway-runtime ringway-engine ringway-capture $(PORTS)
HOST = $(shell rustc -vV | sed -n 's/^host: //p')
# RUSTC_BOOTSTRAP lets the stable compiler take -Z. Without LTO, with overflow and debug checks.
SANITIZE = RUSTC_BOOTSTRAP=1 $(CARGO) test --target $(HOST) $(addprefix -p ,$(SANITIZED)) --lib --tests
FUZZ_SECONDS ?= 2
# Built once; another version gets another folder.
DENY_VERSION := 0.20.2
DENY_ROOT := target/tools/cargo-deny-$(DENY_VERSION)
DENY := $(DENY_ROOT)/bin/cargo-deny
# The workspaces whose dependencies users get.
DENIED := Cargo.toml python/Cargo.toml
# Experiments that end within seconds with --quick. The tests of `ringway bench` run some of them.
TESTED := headline round-trip drop-rate isolation policy programs programs-forwarder programs-bridge
SMOKE := lwep-latency lwep-bandwidth lwep-segmentation lwep-utilisation lwep-binding lwep-hosts lwep-connections lwep-fairness lwep-guard \
  destinations switch-batch receive-batch send-batch frame-size idle-ports shaping shaping-counted shares flooded flooded-vhost programs-batch
# Those that take a quarter of a minute or more even so: in `make smoke-release`.
SMOKE_LONG := shaping-burst shaping-tcp shaping-guests shares-vhost programs-forwarding
# What the demo starts, and what fetches the kernel of its guests.
DEMO_PACKAGES := iproute2 iputils-ping iperf3 ethtool qemu-system-x86 busybox-static cpio xz-utils zstd debian-archive-keyring gcc libc6-dev
PACKAGES := $(DEMO_PACKAGES) tcpdump strace vde2 procps \
  dpdk dpdk-dev librte-meta-net librte-meta-mempool openvswitch-switch-dpdk \
  tshark prometheus python3-prometheus-client curl jq passt \
  g++ binutils pkg-config valgrind man-db spin \
  python3 python3-venv \
  linux-source mmdebstrap \
  libpcap0.8-dev python3-scapy tcpreplay arping nmap hping3 \
  rustc libstd-rust-dev-wasm32 clang lld

.PHONY: all build install uninstall demo deps test whole check format lint unit loom build-loom asan tsan oracle deny repeats fuzz fuzz-long coverage mutants build-fuzz python python-test kits-test smoke smoke-release experiments plain bench benchmarks guest-driver guest-driver-package guests nightly fresh shake clean

# `make demo` and what must pass before a change lands, on a Debian 12 on which nothing is installed.
fresh:
	packaging/fresh make demo
	packaging/fresh

all: build

# The switch, the laboratory that `ringway bench` and `ringway demo` execute, the C library, and the libraries that `ringway exec` gives to
# programs. The compiler of forwarding programs is built apart, as its features must not become those of the switch.
# PROFILE=packaged: with link-time optimisation and line numbers in backtraces, as packages have it.
PROFILE ?= release
build:
	$(CARGO) build --profile $(PROFILE) -p ringway -p ringway-c -p ringway-netmap -p ringway-pcap --features lab
	$(CARGO) build --profile $(PROFILE) -p ringway-forwarding --features compiler

# Where `make install` and `make uninstall` find what was built, and where it goes.
BUILT ?= target/$(PROFILE)
PREFIX ?= /usr/local
DESTDIR ?=

# Does not build, so that root needs no cargo.
install uninstall:
	PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" packaging/install $@ "$(BUILT)"

# Builds what the demo needs and nothing else: neither experiments nor libraries nor the compiler of forwarding programs.
demo:
	@./packaging/install-deps $(DEMO_PACKAGES)
	$(CARGO) build --release -p ringway --features demo
	target/release/ringway demo --fetch-kernel

# By default for the running kernel, or where its headers are not installed, for that of Debian 12.
KDIR ?= $(patsubst %/Makefile,%,$(wildcard /lib/modules/$(shell uname -r)/build/Makefile))
GUEST_HEADERS := target/guest-headers

guest-driver: $(if $(KDIR),,$(GUEST_HEADERS))
	$(if $(KDIR),$(MAKE) -C guest/linux KDIR="$(abspath $(KDIR))",$(GUEST_HEADERS)/make guest/linux)

$(GUEST_HEADERS):
	packaging/guest-headers bookworm $@

guest-driver-package:
	@packaging/guest-driver-package target

# What builds the debug kernel of guests (packaging/guest-debug-kernel).
KERNEL_PACKAGES := bc bison flex libelf-dev libssl-dev make perl

guests: deps
	@./packaging/install-deps $(KERNEL_PACKAGES)
	RINGWAY_GUESTS_WHOLE=1 $(CARGO) test --profile tests -p ringway-guests -- --include-ignored
	RINGWAY_GUESTS_WHOLE=1 RINGWAY_STOPPED_SECONDS=60 RINGWAY_LYING_SECONDS=120 $(CARGO) test --profile tests -p ringway --test guests -- --include-ignored

# What takes too long for every change. Parts that have passed on this commit are not run again: `make nightly` can be interrupted.
NIGHTLY ?= test whole smoke-release experiments plain deny asan tsan guests oracle soak-short repeats fuzz-long coverage
nightly:
	@MAKE="$(MAKE)" packaging/nightly $(NIGHTLY)

# Licences, sources and duplicates of the dependencies (deny.toml). Known vulnerabilities, too, where their database can be fetched.
deny: $(DENY)
	for manifest in $(DENIED); do $(DENY) --locked --config deny.toml --manifest-path $$manifest check bans licenses sources || exit 1; done
	@if $(DENY) fetch db; then \
	  for manifest in $(DENIED); do $(DENY) --locked --config deny.toml --manifest-path $$manifest check --disable-fetch advisories || exit 1; done; \
	else echo "make deny: the database of advisories cannot be fetched here: known vulnerabilities are not checked" >&2; fi

$(DENY):
	$(CARGO) install cargo-deny --locked --version $(DENY_VERSION) --root $(DENY_ROOT) --target-dir target/tools/build

# Policy against another reading of every frame, for an hour: other seeds than those of `make test`.
oracle:
	RINGWAY_ORACLE_SECONDS=$${RINGWAY_ORACLE_SECONDS:-3600} $(CARGO) test --profile tests -p ringway-port-tests --test oracle -- --nocapture

# Kills, upgrades, and what happens to clients and devices, under traffic of all kinds of ports (crates/ringway/tests/soak). Needs root.
.PHONY: soak soak-short
soak:
	RINGWAY_REQUIRE_ALL=1 $(CARGO) test --profile tests -p ringway --test soak -- --ignored --exact --nocapture everything_outlives_seeded_faults

# The same faults every night.
soak-short: export RINGWAY_SOAK_SECONDS := 20
soak-short: export RINGWAY_SEED := 1
soak-short: soak

# Tests that repeat less in `make test`, in their long form (testing/src/whole.rs).
whole:
	RINGWAY_WHOLE=1 $(CARGO) test --profile tests -p ringway --no-fail-fast --test documents --test hostile
	RINGWAY_WHOLE=1 $(CARGO) test --profile tests -p ringway --no-fail-fast --test commands --test daemon --test libraries -- demo:: gen_vhost:: killed:: netmap::
	RINGWAY_WHOLE=1 $(CARGO) test --profile tests --workspace --lib -- congestion limit virtqueue
	RINGWAY_WHOLE=1 $(CARGO) test --profile tests -p ringway-port-e1000 --lib

# Every message of vhost-user 100,000 times.
repeats:
	RINGWAY_REPEATS=100000 $(CARGO) test --profile tests -p ringway-port-vhost-user --test vhost_user_repeats

# How much of the data path the tests of its crates reach, with floors.
coverage:
	@./packaging/install-deps llvm-19
	packaging/coverage

# Mutation testing of samples of 300: hours, in as many calls as you like.
MUTANTS := target/tools/mutants/bin/cargo-mutants
mutants: $(MUTANTS)
	packaging/mutants core
	packaging/mutants policy

$(MUTANTS):
	$(CARGO) install cargo-mutants --locked --version 27.1.0 --root target/tools/mutants --target-dir target/tools/build

bench: export PROFILE := packaged
bench: deps
	$(MAKE) --no-print-directory build
	target/packaged/ringway bench --json results/bench.json --plots results

# docs/benchmarks.md with its plots, from results of `ringway bench --json`.
RESULTS ?= results/bench.json
benchmarks: build
	rm -f docs/benchmarks/*.svg
	cd docs && ../target/$(PROFILE)/ringway bench $(addprefix --report ,$(abspath $(RESULTS))) \
	  --plots benchmarks --summary benchmarks/run.json >benchmarks.md

deps:
	@./packaging/install-deps $(PACKAGES)

# The parts of `make test`, in this order. `make unit` also builds what those after it need.
PARTS := deps format unit lint python-test kits-test loom fuzz smoke
# The same cases every time; `make unit` alone tries others.
test: export PROPTEST_RNG_SEED ?= 1
# Tests that cannot run on this machine append a line to this file (testing/src/skip.rs).
test: export RINGWAY_SKIPPED := $(CURDIR)/target/skipped-tests
# What is built of the wheel and of the fuzz targets for seconds of work is not optimised.
test: export PYTHON_PROFILE := quick
test: export FUZZ_PROFILE := quick
test: export RINGWAY_TIMES := $(CURDIR)/target/times
test: forget-skipped
	@for part in $(PARTS); do packaging/timed $$part $(MAKE) --no-print-directory $$part || exit 1; done
	@packaging/timed
	@echo "make test: all parts passed"
	@packaging/skipped-tests "$$RINGWAY_SKIPPED"

.PHONY: forget-skipped
forget-skipped:
	@mkdir -p target && rm -f target/skipped-tests target/times target/times.tests

# Commits after this one have subjects of at most 72 characters.
SUBJECTS_BASE := c0bc29ae83555c1787fe3ae40e1cdda4bd437bdc

check: format lint

format:
	packaging/subjects $(SUBJECTS_BASE)
	$(CARGO) fmt --all --check

lint:
	$(CARGO) clippy --profile tests --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --profile tests --workspace --no-deps --quiet

# Unit, property, integration and end-to-end tests, against real programs. Many of them wait: what is left of the processors meanwhile
# does the lints and builds what `make test` needs after that. Those parts repeat what fails here, with its messages.
unit:
	CARGO=$(CARGO) packaging/run-tests --build --profile tests --workspace
	nice -n 19 $(MAKE) --no-print-directory --keep-going lint build-loom build-fuzz python >target/builds.log 2>&1 & \
	  CARGO=$(CARGO) packaging/run-tests --profile tests --workspace; status=$$?; wait; exit $$status

# The test programs beside endless loops, on one processor, or both, for SHAKE_SECONDS: `packaging/shake` says what it keeps where.
shake:
	CARGO=$(CARGO) packaging/shake --profile tests --workspace

LOOM := RUSTFLAGS="--cfg loom" $(CARGO) test --profile tests --target-dir $(LOOM_TARGET) \
	  -p ringway-abi -p ringway-engine -p ringway-switch -p ringway-forwarding --test 'loom_*'

loom:
	$(LOOM)

build-loom:
	$(LOOM) --no-run

# Guest memory is mapped twice in the tests, once for each side, so that what is reported is never the races with it that
# are intended. --target keeps the flags from build scripts.
# Part of `make nightly`, as it takes minutes to build. A test that compares the process's memory before and after has to be
# left out: freed memory is kept for a while.
asan:
	RUSTFLAGS="-Zsanitizer=address" $(SANITIZE) --target-dir target/asan -- --skip everything_over_and_over

# The standard library, too, has to be built with it: otherwise its locks are not seen. `packaging/rust-src` finds its source.
# A test that compares the process's memory before and after has to be left out.
tsan:
	source=$$(./packaging/rust-src target/rust-src) && \
	  __CARGO_TESTS_ONLY_SRC_ROOT=$$source RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=thread" \
	  TSAN_OPTIONS="suppressions=$(CURDIR)/packaging/tsan-suppressions" \
	  $(CARGO) test -Zbuild-std --target $(HOST) --target-dir target/tsan $(addprefix -p ,$(THREADED)) --lib --tests -- \
	  --skip everything_over_and_over

fuzz:
	fuzz/run all $(FUZZ_SECONDS)

# Each target for a minute, and `program`, whose build takes minutes, for five.
fuzz-long:
	fuzz/run all 60
	fuzz/run program 300

build-fuzz:
	fuzz/run all build

# The Python package. Its tools are in a virtual environment of Debian's Python, of these versions.
PYTHON_FOLDER := target/python
PYTHON_PROFILE ?= release
PYTHON_TOOLS := $(PYTHON_FOLDER)/tools-$(firstword $(shell cksum python/requirements.txt))

$(PYTHON_TOOLS)/ready:
	rm -rf $(PYTHON_FOLDER)/tools-*
	/usr/bin/python3 -m venv $(PYTHON_TOOLS)
	$(PYTHON_TOOLS)/bin/pip install --quiet --disable-pip-version-check --requirement python/requirements.txt
	touch $@

python: $(PYTHON_TOOLS)/ready
	rm -rf $(PYTHON_FOLDER)/wheels
	CARGO=$(CARGO) $(PYTHON_TOOLS)/bin/maturin build --profile $(PYTHON_PROFILE) --locked --quiet --manifest-path python/Cargo.toml \
	  --target-dir $(PYTHON_FOLDER)/build --interpreter $(PYTHON_TOOLS)/bin/python --out $(PYTHON_FOLDER)/wheels

# The wheel as a user installs it, against the daemon that `make unit` built.
python-test: python
	$(CARGO) fmt --manifest-path python/Cargo.toml --check
	$(CARGO) clippy --profile $(PYTHON_PROFILE) --locked --manifest-path python/Cargo.toml --target-dir $(PYTHON_FOLDER)/build -- -D warnings
	$(CARGO) test --profile tests --workspace --test commands --no-run
	$(PYTHON_TOOLS)/bin/pip install --quiet --disable-pip-version-check --force-reinstall --no-deps $(PYTHON_FOLDER)/wheels/*.whl
	cd python/tests && RINGWAY=$(CURDIR)/target/tests/ringway $(CURDIR)/$(PYTHON_TOOLS)/bin/python -W error::ResourceWarning \
	  -m unittest discover

# The kit of forwarding programs for Rust, where it needs no switch. `make unit` builds its examples with Debian's compiler and runs them.
KIT := --manifest-path kits/rust/Cargo.toml --target-dir target/kits
kits-test:
	$(CARGO) fmt --manifest-path kits/rust/Cargo.toml --check
	$(CARGO) clippy $(KIT) --lib --tests -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc $(KIT) --no-deps --quiet
	$(CARGO) test $(KIT) --lib --quiet

# Experiments run to their end and give figures; nothing is asserted about speed. Those with virtual machines' ports start
# DPDK programs for every figure and take minutes: `ringway bench --quick` runs them too. The programs are those that `make unit` built:
# no build with link-time optimisation. The tests of symbols stand for the libraries of `ringway exec`.
smoke:
	$(CARGO) test --profile tests --workspace --test commands --test symbols --no-run
	target/tests/ringway bench $(SMOKE) --quick --json target/bench-quick.json

smoke-release: export PROFILE := packaged
smoke-release:
	$(MAKE) --no-print-directory build
	target/packaged/ringway bench $(TESTED) $(SMOKE) $(SMOKE_LONG) --quick --json target/bench-quick.json

# Experiments with virtual machines or other switches for each figure, and what they promise.
experiments: deps
	$(CARGO) test --profile tests -p ringway --test commands -- bench:: --ignored

# A build without forwarding programs.
plain:
	$(CARGO) clippy --profile tests -p ringway --no-default-features --target-dir target/plain -- -D warnings
	$(CARGO) build --profile tests -p ringway --no-default-features --target-dir target/plain
	RINGWAY_PLAIN=$(CURDIR)/target/plain/tests/ringway $(CARGO) test --profile tests -p ringway --test programs absent -- --ignored

clean:
	$(CARGO) clean
