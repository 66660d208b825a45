# The front door. Everything real is in CMakeLists.txt; this file names the things people do.
#   make BUILD=build-clang CC=clang      another compiler, in a folder of its own
#   make FLAGS=-DSLUICE_STATIC=ON        options of CMakeLists.txt
BUILD    ?= build
CMAKE    ?= cmake
JOBS     ?= $(shell nproc)
PREFIX   ?= /usr/local
FLAGS    ?=
MAKEFLAGS += --no-print-directory

.PHONY: all deps deps-test configure demo test test-long test-gpu test-referees fuzz bench asan tsan install uninstall wheel python clean format docs dist test-dist test-reproduce deb test-deb site
.NOTPARALLEL: # the targets are steps; each is parallel inside

all: configure
	@$(CMAKE) --build $(BUILD) -j $(JOBS)

configure:
	@command -v $(CMAKE) > /dev/null || { echo "cmake is missing; 'make deps' installs what the build needs"; exit 1; }
	@$(CMAKE) -S . -B $(BUILD) -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX=$(PREFIX) $(FLAGS) > $(BUILD).log 2>&1 || \
	    { cat $(BUILD).log; rm -f $(BUILD).log; echo "'make deps' installs what the build needs"; exit 1; }
	@rm -f $(BUILD).log

# Installs what is missing on Debian and its children; does nothing where all is there.
deps:
	@scripts/deps

deps-test:
	@scripts/deps --test

# Two minutes on two cores: a small GPT learns from this project's own source, then writes some.
demo: deps configure
	@echo "building the program in $(BUILD) ..."
	@$(CMAKE) --build $(BUILD) -j $(JOBS) --target sluice_program > $(BUILD)/demo.log 2>&1 || { cat $(BUILD)/demo.log; exit 1; }
	@scripts/demo $(BUILD)

# Everything, or with T=FOLDER[:NAME-PART] one folder's tests, all or those whose names contain the part:
#   make test T=plan      make test T=plan:wait      make test T="ir plan:wait"
ifdef T
test: deps-test configure
	@$(CMAKE) --build $(BUILD) -j $(JOBS) $(if $(filter install install:%,$(T)),,--target $(foreach t,$(T),$(patsubst test_python,build_for_python,test_$(firstword $(subst :, ,$(t))))))
	@tests/run $(BUILD) $(T)
else
test: deps-test all
	@tests/run $(BUILD)
endif

# Sanitizers, the other compiler, the whole matrix and the whole kill campaigns: about an hour.
test-long: deps-test all
	@tests/run-long $(BUILD)

# All that a machine with one GPU can show, in a few minutes; LONG=1: the whole matrix.
test-gpu: deps-test all
	@tests/run-gpu $(BUILD)

# What other programs (transformers, TRL, tokenizers, ...) make of the same inputs, where SLUICE_PYTHON (python3) has them.
test-referees: all
	@tests/run-referees $(BUILD)

# Inputs that the parsers do not stand: libFuzzer with the address and undefined-behaviour sanitizers, FUZZ_SECONDS (60)
# for each parser, from the corpus in tests/fuzz/corpus on.
fuzz: deps-test
	@$(MAKE) configure CC=clang BUILD=$(BUILD)-fuzz FLAGS="$(FLAGS) -DSLUICE_FUZZ=ON -DSLUICE_MPI=OFF"
	@$(CMAKE) --build $(BUILD)-fuzz -j $(JOBS) --target fuzz
	@tests/run-fuzz $(BUILD)-fuzz

# Timings, beside PyTorch where SLUICE_PYTHON (or python3) has it.
bench: deps all
	@$(CMAKE) --build $(BUILD) -j $(JOBS) --target bench
	@bench/run $(BUILD)

# The whole test suite under the address and undefined-behaviour sanitizers.
# gcc 13 puts 64-byte vectors at odd places of the stack that its sanitizer makes up for returned frames, so there is none.
asan: deps
	@$(MAKE) all BUILD=$(BUILD)-asan FLAGS="$(FLAGS) -DSLUICE_SANITIZE=ON"
	@ASAN_OPTIONS=detect_stack_use_after_return=0:$$ASAN_OPTIONS tests/run $(BUILD)-asan

# The parts with threads and ranks under clang's thread sanitizer; nothing is suppressed. Without MPI, which is not
# instrumented and is reported for its own locks.
tsan: deps
	@$(MAKE) all CC=clang BUILD=$(BUILD)-tsan FLAGS="$(FLAGS) -DSLUICE_SANITIZE_THREADS=ON -DSLUICE_MPI=OFF"
	@tests/run $(BUILD)-tsan core backend comm runtime checkpoint train

install: all
	@$(CMAKE) --install $(BUILD)

# Removes what the newest `make install` wrote.
uninstall:
	@scripts/uninstall $(BUILD)

# An archive that runs on any Linux with this glibc or a newer one, in $(BUILD)-dist; and its test, in a folder of glibc alone.
dist: deps
	@$(MAKE) configure BUILD=$(BUILD)-dist FLAGS="$(FLAGS) -DSLUICE_PORTABLE=ON -DCMAKE_INSTALL_LIBDIR=lib"
	@$(CMAKE) --build $(BUILD)-dist -j $(JOBS) --target dist_parts
	@scripts/dist $(BUILD)-dist

test-dist: dist
	@tests/install/dist_test $(BUILD)-dist

# The archive built again elsewhere, which must give the same bytes.
test-reproduce: dist
	@FLAGS="$(FLAGS)" tests/install/reproduce $(BUILD)-dist

# Debian packages, in $(BUILD)-deb; and their test, in a Debian of their own: installed, used, removed. Needs debhelper, fakeroot
# and dpkg-dev; the test lintian and debootstrap as well.
deb: deps-test
	@scripts/deb $(BUILD)-deb

test-deb: deb
	@tests/install/deb_test $(BUILD)-deb

# A wheel of the Python package, with library and program inside, for machines that have nothing but Python: $(BUILD)/wheel.
wheel:
	@python3 python/build_sluice.py $(BUILD)/wheel

# What the Python package has of include/sluice.h, written anew.
python:
	@python3 python/generate.py

# The documentation as a site of plain files with a search, in $(BUILD)-site; needs Python's standard library alone.
site:
	@scripts/make-site $(BUILD)-site

# docs/config.md and docs/commands.md are printed by the program from its tables; a test writes the table of docs/resume.md.
docs: all
	@$(BUILD)/sluice config --markdown > docs/config.md
	@$(BUILD)/sluice help --markdown > docs/commands.md
	@RECORD_DOCS=1 $(BUILD)/test_config the_page_on_resuming

format:
	@clang-format -i $$(git ls-files '*.c' '*.h')

clean:
	@rm -rf $(BUILD) $(BUILD)-asan $(BUILD)-tsan $(BUILD)-fuzz $(BUILD)-clang $(BUILD)-gcc $(BUILD)-dist $(BUILD)-deb build-wheel
