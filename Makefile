# The front door. Everything real is in CMakeLists.txt; this file names the things people do.
BUILD    ?= build
CMAKE    ?= cmake
JOBS     ?= $(shell nproc)
PREFIX   ?= /usr/local

.PHONY: all deps configure demo test test-long bench asan install clean format docs

all: configure
	@$(CMAKE) --build $(BUILD) -j $(JOBS)

configure:
	@$(CMAKE) -S . -B $(BUILD) -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX=$(PREFIX) > $(BUILD).log 2>&1 || { cat $(BUILD).log; exit 1; }
	@rm -f $(BUILD).log

# Installs what is missing on Debian and its children; does nothing where all is there.
deps:
	@scripts/deps

demo: deps all
	@scripts/demo $(BUILD)

test: deps all
	@tests/run $(BUILD)

test-long: deps all
	@tests/run-long $(BUILD)

bench: deps all
	@bench/run $(BUILD)

# The whole test suite under the address and undefined-behaviour sanitizers.
asan: deps
	@$(CMAKE) -S . -B $(BUILD)-asan -DCMAKE_BUILD_TYPE=Release -DSLUICE_SANITIZE=ON
	@$(CMAKE) --build $(BUILD)-asan -j $(JOBS)
	@tests/run $(BUILD)-asan

install: all
	@$(CMAKE) --install $(BUILD)

# docs/config.md is printed by the program from its option table.
docs: all
	@$(BUILD)/sluice config --markdown > docs/config.md

format:
	@clang-format -i $$(git ls-files '*.c' '*.h')

clean:
	@rm -rf $(BUILD) $(BUILD)-asan
