/* open_safetensors.c: the reader of weights files as a program, for the referee beside it (safetensors_mutations.py).
 *
 * Standard input is one file after the other, each after its length as 4 bytes, little-endian. Each is answered by a line: "ok",
 * or why it was refused. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "format/safetensors.h"

/* Every tensor that the header promises can be read. */
static sluice_status read_all(sl_st_file *f)
{
    for (int64_t i = 0; i < f->tensor_count; i++) {
        const sl_st_tensor *t = &f->tensors[i];
        void *data = malloc(t->bytes + 1);
        if (data == NULL) return SLUICE_ERR_NO_MEMORY;
        sluice_status st = sl_st_read(f, t, 0, sl_st_elements(t), data);
        free(data);
        if (st != SLUICE_OK) return st;
    }
    return SLUICE_OK;
}

static void judge(const char *path)
{
    sl_st_file *f;
    sluice_status st = sl_st_open(path, &f);
    if (st == SLUICE_OK) {
        st = read_all(f);
        sl_st_close(f);
    }
    puts(st == SLUICE_OK ? "ok" : sluice_error());
}

static void put_file(const char *path, const char *data, uint32_t bytes)
{
    FILE *out = fopen(path, "wb");
    if (out == NULL || fwrite(data, 1, bytes, out) != bytes || fclose(out) != 0) exit(1);
}

int main(void)
{
    char path[64];
    uint8_t length[4];
    snprintf(path, sizeof path, "%s/mutated-%d.safetensors", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp",
             (int)getpid());
    while (fread(length, 1, sizeof length, stdin) == sizeof length) {
        uint32_t bytes = length[0] | (uint32_t)length[1] << 8 | (uint32_t)length[2] << 16 | (uint32_t)length[3] << 24;
        char *data = malloc((size_t)bytes + 1);
        if (data == NULL || fread(data, 1, bytes, stdin) != bytes) return 1;
        put_file(path, data, bytes);
        free(data);
        judge(path);
    }
    remove(path);
    return 0;
}
