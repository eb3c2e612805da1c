# The front door. Each target is a line or two that calls cmake, ctest or a script.
BUILD ?= build
PACKAGES = build-essential cmake ninja-build pkg-config git libopenmpi-dev openmpi-bin libhdf5-openmpi-dev \
           libboost-program-options-dev libhwy-dev nlohmann-json3-dev libsentencepiece-dev libxxhash-dev \
           libgtest-dev libbenchmark-dev bible-kjv
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)

all: $(BUILD)/build.ninja
	cmake --build $(BUILD)

$(BUILD)/build.ninja: | deps
	cmake -G Ninja -S . -B $(BUILD)

# Debian packages that are missing; nothing is done when all are there.
deps:
	@dpkg -s $(PACKAGES) >/dev/null 2>&1 || \
	  { $(SUDO) apt-get update -q && $(SUDO) apt-get install -q -y --no-install-recommends $(PACKAGES); }

demo: $(BUILD)/build.ninja
	cmake --build $(BUILD) --target isotrain
	jobscripts/demo.sh $(BUILD)/isotrain

test: all
	ctest --test-dir $(BUILD) --output-on-failure -j $$(nproc)

# Every layout that fits 8 ranks against one rank, for hours; SAMPLE=100 takes as many of them, drawn by SEED.
test-layouts: $(BUILD)/build.ninja
	cmake --build $(BUILD) --target layout_matrix
	$(BUILD)/tests/app/layout_matrix $(if $(SAMPLE),--sample $(SAMPLE)) $(if $(SEED),--seed $(SEED))

# The tests under AddressSanitizer and UndefinedBehaviorSanitizer, the short ones.
test-sanitized: | deps
	cmake -G Ninja -S . -B $(BUILD)-sanitized -DISOTRAIN_SANITIZE=ON -DISOTRAIN_BENCHMARKS=OFF
	cmake --build $(BUILD)-sanitized
	ctest --test-dir $(BUILD)-sanitized --output-on-failure -j $$(nproc) -LE long

bench: all
	benchmarks/run.sh $(BUILD)

format:
	git ls-files '*.h' '*.cpp' | xargs clang-format -i

.PHONY: all deps demo test test-layouts test-sanitized bench format
