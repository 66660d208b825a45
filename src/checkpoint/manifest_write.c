/* manifest_write.c: a manifest as text. Doubles are written as the 16 hexadecimal digits of their bits and the seed as
 * a decimal string, because JSON numbers would lose infinities and integers beyond 2^63. */
#include <inttypes.h>
#include <string.h>
#include <xxhash.h>

#include "checkpoint/manifest.h"
#include "checkpoint/meta.h"

static void add_meta_field(sl_text *text, const sl_meta_field *field, const sl_checkpoint_meta *meta)
{
    const char *at = (const char *)meta + field->offset;
    uint64_t bits = 0;
    sl_text_add(text, "\"%s\": ", field->name);
    if (field->type == SL_META_TEXT) {
        sl_text_add_string(text, at);
        return;
    }
    memcpy(&bits, at, sizeof bits);
    if (field->type == SL_META_COUNT) sl_text_add(text, "%" PRIu64, bits);
    if (field->type == SL_META_UNSIGNED) sl_text_add(text, "\"%" PRIu64 "\"", bits);
    if (field->type == SL_META_DOUBLE) sl_text_add(text, "\"%016" PRIx64 "\"", bits);
}

static void add_files(sl_text *text, const sl_manifest *m)
{
    for (int64_t i = 0; i < m->file_count; i++) {
        const sl_manifest_file *f = &m->files[i];
        sl_text_add(text, "%s\n  {\"name\": ", i > 0 ? "," : "");
        sl_text_add_string(text, f->name);
        sl_text_add(text, ", \"bytes\": %" PRIu64 ", \"xxh3\": [", f->bytes);
        for (int64_t c = 0; c < f->chunk_count; c++)
            sl_text_add(text, "%s\"%016" PRIx64 "\"", c > 0 ? ", " : "", f->chunks[c]);
        sl_text_add(text, "]}");
    }
}

/* Pieces are listed apart from the tensors they refer to by index: in the order of the files, which is the order of
 * reading. */
static void add_pieces(sl_text *text, const sl_manifest *m)
{
    for (int64_t i = 0; i < m->piece_count; i++) {
        const sl_manifest_piece *p = &m->pieces[i];
        sl_text_add(text,
                    "%s\n  {\"tensor\": %" PRId64 ", \"first\": %" PRIu64 ", \"count\": %" PRIu64 ", \"file\": %" PRId64
                    ", \"offset\": %" PRIu64 "}",
                    i > 0 ? "," : "", p->tensor, p->first, p->count, p->file, p->offset);
    }
}

/* What weights files hold of it, for exports: the manifest is all they have. */
static void add_parts(sl_text *text, const sl_state_tensor *t)
{
    if (t->part_count == 0) return;
    sl_text_add(text, ", \"parts\": [");
    for (int i = 0; i < t->part_count; i++) {
        sl_text_add(text, "%s{\"name\": ", i > 0 ? ", " : "");
        sl_text_add_string(text, t->parts[i].name);
        sl_text_add(text, ", \"rows\": %" PRId64 "}", t->parts[i].rows);
    }
    sl_text_add(text, "]");
}

static void add_tensors(sl_text *text, const sl_manifest *m)
{
    for (int64_t i = 0; i < m->tensor_count; i++) {
        const sl_state_tensor *t = &m->tensors[i];
        sl_text_add(text, "%s\n  {\"name\": ", i > 0 ? "," : "");
        sl_text_add_string(text, t->name);
        sl_text_add(text, ", \"kind\": ");
        sl_text_add_string(text, t->kind);
        sl_text_add(text, ", \"dtype\": \"f32\", \"shape\": [");
        for (int d = 0; d < t->shape.rank; d++) sl_text_add(text, "%s%" PRId64, d > 0 ? ", " : "", t->shape.dim[d]);
        sl_text_add(text, "]");
        add_parts(text, t);
        sl_text_add(text, "}");
    }
}

static void add_vocabulary(sl_text *text, const sl_kept_vocabulary *v)
{
    if (v->unit == NULL) return;
    sl_text_add(text, ",\n \"vocabulary\": {\"unit\": ");
    sl_text_add_string(text, v->unit);
    if (v->characters != NULL) {
        sl_text_add(text, ", \"characters\": ");
        sl_text_add_string(text, v->characters);
    }
    sl_text_add(text, "}");
}

void sl_manifest_write(const sl_manifest *m, sl_text *text)
{
    sl_text_add(text, "{\n \"format\": %" PRId64 ",\n \"sluice\": ", m->format);
    sl_text_add_string(text, m->version);
    sl_text_add(text, ",\n \"ranks\": %" PRId64 ",\n \"meta\": {", m->ranks);
    for (size_t i = 0; i < sl_meta_field_count; i++) {
        if (i > 0) sl_text_add(text, ", ");
        add_meta_field(text, &sl_meta_fields[i], &m->meta);
    }
    sl_text_add(text, "}");
    add_vocabulary(text, &m->vocabulary);
    sl_text_add(text, ",\n \"files\": [");
    add_files(text, m);
    sl_text_add(text, "\n ],\n \"tensors\": [");
    add_tensors(text, m);
    sl_text_add(text, "\n ],\n \"pieces\": [");
    add_pieces(text, m);
    sl_text_add(text, "\n ],\n");
    sl_manifest_seal(text);
}

void sl_manifest_seal(sl_text *text)
{
    if (text->failed) return;
    sl_text_add(text, " \"xxh3\": \"%016" PRIx64 "\"\n}\n", (uint64_t)XXH3_64bits(text->data, text->bytes));
}
