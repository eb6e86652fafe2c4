# What others rely on: `make demo`, `make test`, `make bench`. Each brings what it needs on a fresh Debian machine.

.PHONY: build demo test bench lab kernels clean

build:
	scripts/setup build
	cargo build --release --workspace --bins

# On the NIC in software; with BACKEND=tc on the kernel's flower classifier, in a virtual machine.
demo:
	scripts/setup demo
	[ "$(BACKEND)" != tc ] || scripts/setup lab
	cargo build --workspace --bins
	BACKEND=$(BACKEND) scripts/demo

test:
	scripts/test

bench:
	scripts/setup bench
	scripts/bench

# A shell on a real kernel, see tests/lab/run; with DEVICE=connectx one with a ConnectX in software, see tests/lab/connectx.
lab:
	scripts/setup lab
ifeq ($(DEVICE),connectx)
	cargo build -p sluice-connectx
	tests/lab/connectx --shell
else
	tests/lab/run --shell
endif

# All of the tc backend's scenarios on the newer kernel too, of which `make test` plays a part there.
kernels:
	scripts/setup test
	cargo test -p sluice-tests --test tc
	LAB_KERNEL=$$(tests/lab/kernel) cargo test -p sluice-tests --test tc --test tc_links

clean:
	cargo clean
