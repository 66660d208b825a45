/* weights_index_fuzz.c: the index of weights in several files, beside two files that it may name. What is opened has each
 * tensor once, in a file of the folder. */
#include <string.h>

#include "format/weights_set.h"
#include "support/fuzz/fuzz.h"

/* A file with two F32 tensors of one element. */
static void write_file(const char *name, const char *first, const char *second)
{
    char header[256], bytes[300] = { 0 };
    int length = snprintf(
        header, sizeof header,
        "{\"%s\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},\"%s\":{\"dtype\":\"F32\",\"shape\":[1],"
        "\"data_offsets\":[4,8]}}",
        first, second);
    bytes[0] = (char)length;
    memcpy(bytes + 8, header, (size_t)length);
    fuzz_file(name, bytes, 8 + (size_t)length + 8);
}

void fuzz_weights_index(const uint8_t *data, size_t bytes)
{
    sl_weights_set *s;
    write_file("a.safetensors", "x", "y");
    write_file("b.safetensors", "z", "w");
    const char *path = fuzz_file("model.safetensors.index.json", data, bytes);
    if (!fuzz_accepted(sl_weights_set_open(path, &s))) return;
    FUZZ_CHECK(s->file_count >= 1 && s->file_count <= 2);
    FUZZ_CHECK(s->tensor_count == 2 * s->file_count);
    for (int64_t i = 0; i < s->tensor_count; i++) {
        float value = 1;
        FUZZ_CHECK(i == 0 || strcmp(s->tensors[i - 1].name, s->tensors[i].name) < 0);
        FUZZ_CHECK(sl_weights_set_find(s, s->tensors[i].name) == &s->tensors[i]);
        FUZZ_CHECK(strncmp(s->tensors[i].file->file.path, fuzz_folder(), strlen(fuzz_folder())) == 0);
        FUZZ_CHECK(sl_set_read_f32(&s->tensors[i], 0, 1, &value) == SLUICE_OK && value == 0);
    }
    sl_weights_set_close(s);
}
