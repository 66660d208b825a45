/* safetensors_fuzz.c: a file of weights. All tensors of one that was opened are inside it, and are read. */
#include "format/safetensors.h"
#include "support/fuzz/fuzz.h"

static void read_tensor(sl_st_file *f, const sl_st_tensor *t, size_t file_bytes)
{
    int64_t count = sl_st_elements(t);
    FUZZ_CHECK(sl_st_find(f, t->name) == t);
    FUZZ_CHECK(t->bytes == (uint64_t)count * sl_st_dtype_bytes(t->dtype));
    FUZZ_CHECK(f->data_offset + t->begin + t->bytes <= file_bytes);
    void *raw = malloc(t->bytes + 1);
    float *values = malloc((size_t)count * sizeof *values + 1);
    FUZZ_CHECK(raw != NULL && values != NULL);
    FUZZ_CHECK(sl_st_read(f, t, 0, count, raw) == SLUICE_OK);
    FUZZ_CHECK(fuzz_accepted(sl_st_read_f32(f, t, 0, count, values)) == sl_st_is_float(t->dtype));
    free(raw);
    free(values);
}

void fuzz_safetensors(const uint8_t *data, size_t bytes)
{
    sl_st_file *f;
    const char *path = fuzz_file("weights.safetensors", data, bytes);
    if (!fuzz_accepted(sl_st_open(path, &f))) return;
    uint64_t end = 0;
    for (int64_t i = 0; i < f->tensor_count; i++) {
        const sl_st_tensor *t = &f->tensors[i];
        FUZZ_CHECK(t->begin == end); /* neither overlap nor hole */
        end = t->begin + t->bytes;
        read_tensor(f, t, bytes);
    }
    FUZZ_CHECK(f->data_offset + end == bytes);
    sl_st_close(f);
    FILE *out = fopen("/dev/null", "w");
    FUZZ_CHECK(out != NULL);
    fuzz_accepted(sluice_inspect(path, false, out));
    fuzz_accepted(sluice_inspect(path, true, out));
    fclose(out);
}
