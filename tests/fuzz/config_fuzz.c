/* config_fuzz.c: a configuration file; behind a NUL byte, assignments as --set takes them, one on a line. */
#include <string.h>

#include "config/config.h"
#include "support/fuzz/fuzz.h"

/* What is printed of a configuration that makes sense can be read again, and says the same. */
static void check_printed(const sluice_config *c)
{
    char *once = NULL, *twice = NULL;
    size_t once_bytes, twice_bytes;
    sluice_config *again;
    FILE *out = open_memstream(&once, &once_bytes);
    FUZZ_CHECK(out != NULL);
    sluice_config_print(c, out);
    fclose(out);
    if (!fuzz_accepted(sluice_config_load(fuzz_file("printed.json", once, once_bytes), &again))) {
        fprintf(stderr, "%s\n%s\n", sluice_error(), once);
        abort();
    }
    out = open_memstream(&twice, &twice_bytes);
    FUZZ_CHECK(out != NULL);
    sluice_config_print(again, out);
    fclose(out);
    FUZZ_CHECK(once_bytes == twice_bytes && memcmp(once, twice, once_bytes) == 0);
    sluice_config_destroy(again);
    free(once);
    free(twice);
}

static void set_lines(sluice_config *c, const uint8_t *data, size_t bytes)
{
    char assignment[512];
    for (const uint8_t *end = data + bytes; data < end;) {
        const uint8_t *stop = memchr(data, '\n', (size_t)(end - data));
        if (stop == NULL) stop = end;
        if ((size_t)(stop - data) < sizeof assignment) {
            memcpy(assignment, data, (size_t)(stop - data));
            assignment[stop - data] = '\0';
            fuzz_accepted(sluice_config_set(c, assignment));
        }
        data = stop + (stop < end);
    }
}

void fuzz_config(const uint8_t *data, size_t bytes)
{
    const uint8_t *nul = bytes > 0 ? memchr(data, '\0', bytes) : NULL;
    size_t file = nul != NULL ? (size_t)(nul - data) : bytes;
    sluice_config *c;
    if (!fuzz_accepted(sluice_config_load(fuzz_file("config.json", data, file), &c))) return;
    if (nul != NULL) set_lines(c, nul + 1, bytes - file - 1);
    for (int ranks = 0; ranks < 4; ranks++) {
        sl_settings settings;
        char *text = NULL;
        size_t text_bytes;
        if (!fuzz_accepted(sl_config_resolve(c, ranks, NULL, &settings))) continue;
        FILE *out = open_memstream(&text, &text_bytes);
        FUZZ_CHECK(out != NULL);
        sl_settings_write(&settings, out);
        sl_settings_write_identity(&settings, out);
        fclose(out);
        free(text);
        if (ranks == 0) check_printed(c);
    }
    sluice_config_destroy(c);
}
