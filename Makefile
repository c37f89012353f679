# Short names for `cargo xtask`, which does the work. Only a Rust toolchain is needed.
.PHONY: help build demo test bench tidy

help:
	@cargo xtask help | sed -e 's/cargo xtask COMMAND/make TARGET, or cargo xtask COMMAND/'

build:
	@cargo xtask build

demo:
	@cargo xtask demo

test:
	@cargo xtask test

bench:
	@cargo xtask bench

tidy:
	@cargo xtask tidy
