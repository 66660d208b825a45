/* fuzz_main.c: libFuzzer's entry; compiled once for each target, with FUZZ_TARGET its function. */
#include "support/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    FUZZ_TARGET(data, bytes);
    return 0;
}
