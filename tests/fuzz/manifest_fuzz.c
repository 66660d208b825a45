/* manifest_fuzz.c: the manifest of a checkpoint: as it stands, and sealed, so that a change gets past the checksum. */
#include <string.h>

#include "checkpoint/manifest.h"
#include "support/fuzz/fuzz.h"

/* Pieces cover every tensor exactly once, inside the files: the reader's promise to everyone who reads by it. */
static void check_pieces(const sl_manifest *m)
{
    uint64_t covered = 0, elements = 0;
    for (int64_t i = 0; i < m->piece_count; i++) {
        const sl_manifest_piece *p = &m->pieces[i];
        FUZZ_CHECK(p->tensor >= 0 && p->tensor < m->tensor_count && p->file >= 0 && p->file < m->file_count);
        FUZZ_CHECK(sl_piece_end(p) <= m->files[p->file].bytes);
        covered += p->count;
    }
    for (int64_t i = 0; i < m->tensor_count; i++) elements += (uint64_t)sl_shape_elements(&m->tensors[i].shape);
    FUZZ_CHECK(covered == elements);
}

static void read_text(const char *text, size_t bytes)
{
    sl_manifest *m;
    sl_text again = { .data = NULL };
    fuzz_file(SL_MANIFEST_NAME, text, bytes);
    if (!fuzz_accepted(sl_manifest_read(fuzz_folder(), NULL, &m))) return;
    if (!fuzz_accepted(sl_manifest_check_format(m, fuzz_folder()))) goto free_manifest;
    check_pieces(m);
    sl_manifest *copy;
    sl_manifest_write(m, &again);
    FUZZ_CHECK(sl_text_status(&again) == SLUICE_OK);
    fuzz_file(SL_MANIFEST_NAME, again.data, again.bytes);
    if (!fuzz_accepted(sl_manifest_read(fuzz_folder(), NULL, &copy))) {
        fprintf(stderr, "%s\n%.*s\n", sluice_error(), (int)again.bytes, again.data);
        abort();
    }
    FUZZ_CHECK(copy->tensor_count == m->tensor_count && copy->piece_count == m->piece_count);
    sl_manifest_free(copy);
free_manifest:
    sl_manifest_free(m);
    sl_text_free(&again);
}

void fuzz_manifest(const uint8_t *data, size_t bytes)
{
    static const char last[] = " \"xxh3\":";
    sl_text sealed = { .data = NULL };
    size_t body = bytes;
    for (size_t i = 0; i + sizeof last <= bytes; i++)
        if (memcmp(data + i, last, sizeof last - 1) == 0) body = i;
    sl_text_add_bytes(&sealed, data, body);
    sl_manifest_seal(&sealed);
    FUZZ_CHECK(sl_text_status(&sealed) == SLUICE_OK);
    read_text((const char *)data, bytes);
    read_text(sealed.data, sealed.bytes);
    sl_text_free(&sealed);
}
