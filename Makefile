# What others rely on: `make demo`, `make test`, `make packages`, `make bench`. Each brings what it needs on a fresh Debian machine.

.PHONY: build demo test test-connectx test-all test-setup test-pages test-browser test-clients test-ovn test-vendor-kernel test-ovs-native test-ovs-suite test-rdma-core packages image test-packages test-arm64 test-systemd bench lab clean

# `sluiced` and `sluice`, in target/release.
build:
	scripts/setup build
	cargo build --release -p sluice-agent -p sluice-cli --bins

# Shows them on the NIC in software; with BACKEND=tc on the kernel's flower classifier, in a virtual machine; with BACKEND=dv on an
# emulated BlueField-3. With OVN=1 shows Sluice in front of the Open vSwitches of an OVN, on three chassis in a virtual machine, and with
# OVN=FOLDER beside those of a folder that `tests/ovs-native/build` has made.
demo:
	scripts/setup demo
	[ "$(BACKEND)" != tc ] || scripts/setup lab
	[ -z "$(OVN)" ] || { scripts/setup lab && scripts/setup ovn && cargo build --release -p sluice-ovs-feedback; }
	[ "$(BACKEND)" != dv ] || scripts/setup mlx5
	[ "$(BACKEND)" != dv ] || cargo build --release --manifest-path tests/connectx/Cargo.toml -p connectx -p sluice-connectx-preload
	cargo build --release -p sluice-agent -p sluice-cli --bins
	BACKEND=$(BACKEND) OVN=$(OVN) scripts/demo

# What Sluice promises.
test:
	scripts/test

# The emulated ConnectX itself: what drivers and programs of others find there.
test-connectx:
	scripts/test connectx

# Both, and every scenario on both kernels and on the device, of which the others play a part; and test-pages, test-browser,
# test-clients, test-ovn, test-vendor-kernel, test-ovs-native, test-ovs-suite, test-rdma-core and test-packages.
test-all: test-pages test-browser test-clients test-ovn test-vendor-kernel test-ovs-native test-ovs-suite test-rdma-core test-packages
	scripts/test all

# `make demo` and what `make test` installs, in a new root of Debian.
test-setup:
	scripts/test-setup

# The daemon's allocator, built for arm64, on pages of 4, 16 and 64 KiB.
test-pages:
	scripts/setup pages
	tests/pages/run

# The status page in Chromium.
test-browser:
	scripts/setup browser
	cargo build --workspace --bins
	tests/browser/run

# Clients of the gRPC interface in Python and Go.
test-clients:
	scripts/setup clients
	cargo build --workspace --bins
	tests/clients/run

# Traffic of an OVN: on three chassis, with Sluice in front of each Open vSwitch, as `make demo OVN=1` shows it; and through an emulated BlueField.
test-ovn:
	scripts/setup test
	scripts/setup ovn
	cargo build --workspace --lib --bins
	OVN=1 SLUICE_BIN=target/debug scripts/demo
	cargo test --manifest-path tests/connectx/Cargo.toml --test mlx5_core -- --with-agent --ovn direct_rules

# Flows of Open vSwitch, also in an emulated BlueField, and the same OVN, on a kernel that is configured as vendors of NICs do it, and built from
# Debian's source.
test-vendor-kernel:
	scripts/setup test
	scripts/setup ovn
	scripts/setup vendor-kernel
	cargo build --workspace --lib --bins
	kernel=$$(tests/vendor-kernel/build) && export LAB_KERNEL=$$kernel && \
		cargo test -p sluice-tests --test tc_agent -- translated_ of_ovs ovs_counts lost_messages && \
		cargo test --manifest-path tests/connectx/Cargo.toml --test mlx5_core -- --with-agent --ovn where_the_driver direct_rules && \
		OVN=1 SLUICE_BIN=target/debug scripts/demo

# An Open vSwitch 4.0 that is built with deploy/ovs: one that keeps its flows, as any other, and one that hands them over, on Debian's kernel, on
# one as vendors have it, on an emulated BlueField, and under OVN on both kernels.
test-ovs-native:
	scripts/setup test
	scripts/setup ovn
	scripts/setup vendor-kernel
	scripts/setup ovs-native
	cargo build --workspace --lib --bins
	programs=$$(tests/ovs-native/build) && kernel=$$(tests/vendor-kernel/build) && \
		cargo test -p sluice-tests --test tc_agent -- --ovs=$$programs \
			ovs_hands of_ovs ovs_counts lost_messages ovs_vswitchd_counts && \
		LAB_KERNEL=$$kernel cargo test -p sluice-tests --test tc_agent -- --ovs=$$programs ovs_hands translated_ && \
		cargo test --manifest-path tests/connectx/Cargo.toml --test mlx5_core -- --with-agent --ovn --ovs=$$programs direct_rules && \
		LAB_KERNEL=$$kernel cargo test --manifest-path tests/connectx/Cargo.toml --test mlx5_core -- \
			--with-agent --ovn --ovs=$$programs where_the_driver && \
		export OVN=$$programs SLUICE_BIN=target/debug && scripts/demo && LAB_KERNEL=$$kernel scripts/demo

# Open vSwitch's own tests of a real datapath: without Sluice, with Sluice in front, and with flows handed over to it.
test-ovs-suite:
	scripts/setup test
	scripts/setup ovs-suite
	cargo build --workspace --lib --bins
	tests/ovs-suite/run

# The mirror with the rdma-core and the libclang of Debian 13.
test-rdma-core:
	scripts/setup root
	tests/rdma-core/run

# The Debian packages of this machine's architecture, in target/packages; with ARCH=arm64 those of arm64.
packages:
	ARCH=$(ARCH) scripts/packages

# The container image of this machine's architecture, in target/packages; with ARCH=arm64 that of arm64.
image: packages
	ARCH=$(ARCH) scripts/image

# What lintian, man and shells say of the packages, whether they come out the same twice, and their life in new roots of Debian 12 and 13;
# the container image, and the chart that runs it.
test-packages:
	scripts/setup test-packages
	tests/packages/run

# Those of arm64, under QEMU's emulation of a user's process, on pages of 4, 16 and 64 KiB. Not in test-all: docs/status.md says why.
test-arm64:
	scripts/setup test-packages
	scripts/setup pages
	tests/arm64/run

# The agent under a real systemd, in a virtual machine: an upgrade while packets pass, a worker that stands still, a boot, a purge. Not in
# test-all: docs/status.md says why.
test-systemd:
	scripts/setup test-packages
	scripts/setup lab
	tests/packages/systemd

bench:
	scripts/setup bench
	scripts/setup ovs-native
	scripts/bench

# A shell on a real kernel, see tests/lab/run; with DEVICE=connectx one with a ConnectX in software, see tests/lab/connectx.
lab:
	scripts/setup lab
ifeq ($(DEVICE),connectx)
	cargo build --manifest-path tests/connectx/Cargo.toml -p connectx
	tests/lab/connectx --shell
else
	tests/lab/run --shell
endif

clean:
	cargo clean
