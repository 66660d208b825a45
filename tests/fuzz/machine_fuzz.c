/* machine_fuzz.c: a machine file. What is written of one that was read is read again, and is written the same. */
#include <string.h>

#include "core/alloc.h"
#include "core/io.h"
#include "machine/machine.h"
#include "support/fuzz/fuzz.h"

static char *written(const sl_machine_description *d, size_t *bytes)
{
    char *text, path[160];
    snprintf(path, sizeof path, "%s/written.json", fuzz_folder());
    FUZZ_CHECK(sl_machine_write(path, d) == SLUICE_OK);
    FUZZ_CHECK(sl_file_read_all(path, 1 << 24, &text, bytes) == SLUICE_OK);
    return text;
}

void fuzz_machine(const uint8_t *data, size_t bytes)
{
    sl_machine_description d, again;
    size_t once_bytes, twice_bytes;
    sl_plan_options budgets = { .rank_count = 1 };
    sl_shortage shortage;
    if (!fuzz_accepted(sl_machine_read(fuzz_file("machine.json", data, bytes), &d))) return;
    sl_machine_described_budgets(&budgets, &d, &shortage);
    char *once = written(&d, &once_bytes);
    if (!fuzz_accepted(sl_machine_read(fuzz_file("again.json", once, once_bytes), &again))) {
        fprintf(stderr, "%s\n%.*s\n", sluice_error(), (int)once_bytes, once);
        abort();
    }
    char *twice = written(&again, &twice_bytes);
    FUZZ_CHECK(once_bytes == twice_bytes && memcmp(once, twice, once_bytes) == 0);
    sl_free(once);
    sl_free(twice);
}
