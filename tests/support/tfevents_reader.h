/* tfevents_reader.h: TensorBoard's event files, read: every checksum is verified, and every byte belongs to something. */
#ifndef SLUICE_TEST_TFEVENTS_READER_H
#define SLUICE_TEST_TFEVENTS_READER_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test.h"

typedef struct tf_value {
    char tag[80];
    long long step;
    double seconds;
    float number;
    bool is_text;
    char text[4096]; /* the beginning */
} tf_value;

typedef struct tf_file {
    char version[32];
    int records, count;
    bool whole; /* nothing was wrong */
    bool cut;   /* but that the file ends inside a record */
    tf_value *values;
} tf_file;

typedef struct tf_span {
    const unsigned char *at, *end;
} tf_span;

static inline uint32_t tf_crc(const unsigned char *data, size_t bytes)
{
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < bytes; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ (0x82f63b78u & (0u - (crc & 1)));
    }
    crc = ~crc;
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

static inline uint64_t tf_fixed(const unsigned char *at, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++) value |= (uint64_t)at[i] << (8 * i);
    return value;
}

static inline uint64_t tf_varint(tf_span *s)
{
    uint64_t value = 0;
    for (int shift = 0; s->at < s->end && shift < 64; shift += 7) {
        value |= (uint64_t)(*s->at & 0x7f) << shift;
        if ((*s->at++ & 0x80) == 0) break;
    }
    return value;
}

/* The next field: its number, its value where that is a number, its bytes otherwise. 0: there is none; -1: it is broken. */
static inline int tf_field(tf_span *s, uint64_t *value, tf_span *bytes)
{
    if (s->at >= s->end) return 0;
    uint64_t key = tf_varint(s);
    int wire = (int)(key & 7), size = wire == 1 ? 8 : wire == 5 ? 4 : 0;
    *bytes = (tf_span){ NULL, NULL };
    if (wire == 0) {
        *value = tf_varint(s);
    } else if (size > 0 && s->end - s->at >= size) {
        *value = tf_fixed(s->at, size);
        s->at += size;
    } else if (wire == 2) {
        uint64_t length = tf_varint(s);
        if (length > (uint64_t)(s->end - s->at)) return -1;
        *bytes = (tf_span){ s->at, s->at + length };
        s->at += length;
    } else {
        return -1;
    }
    return (int)(key >> 3);
}

static inline void tf_copy(char *out, size_t bytes, tf_span from)
{
    snprintf(out, bytes, "%.*s", (int)(from.end - from.at), (const char *)from.at);
}

static inline bool tf_read_value(tf_span value, tf_value *out)
{
    uint64_t number;
    tf_span bytes, tensor;
    int field;
    while ((field = tf_field(&value, &number, &bytes)) > 0) {
        uint32_t bits = (uint32_t)number;
        if (field == 1) tf_copy(out->tag, sizeof out->tag, bytes);
        if (field == 2) memcpy(&out->number, &bits, sizeof bits);
        if (field != 8) continue;
        tensor = bytes;
        while ((field = tf_field(&tensor, &number, &bytes)) > 0)
            if (field == 8) {
                out->is_text = true;
                tf_copy(out->text, sizeof out->text, bytes);
            }
    }
    return field == 0;
}

static inline bool tf_read_event(tf_span event, tf_file *out)
{
    uint64_t number;
    tf_span bytes, summary = { NULL, NULL };
    double seconds = 0;
    long long step = 0;
    int field;
    while ((field = tf_field(&event, &number, &bytes)) > 0) {
        if (field == 1) memcpy(&seconds, &number, sizeof seconds);
        if (field == 2) step = (long long)number;
        if (field == 3) tf_copy(out->version, sizeof out->version, bytes);
        if (field == 5) summary = bytes;
    }
    bool fine = field == 0;
    while (fine && (field = tf_field(&summary, &number, &bytes)) > 0) {
        out->values = realloc(out->values, (size_t)(out->count + 1) * sizeof *out->values);
        tf_value *v = &out->values[out->count++];
        *v = (tf_value){ .step = step, .seconds = seconds };
        fine = field == 1 && tf_read_value(bytes, v);
    }
    return fine && field == 0;
}

static inline tf_file tf_read(const unsigned char *data, size_t bytes)
{
    tf_file f = { .whole = true };
    size_t at = 0;
    while (f.whole && at < bytes) {
        const size_t left = bytes - at;
        const bool header = left >= 12 && tf_fixed(data + at + 8, 4) == tf_crc(data + at, 8);
        const uint64_t length = header ? tf_fixed(data + at, 8) : 0;
        const unsigned char *record = data + at + 12;
        f.cut = left < 12 || (header && (left < 16 || length > left - 16));
        f.whole = header && !f.cut && tf_fixed(record + length, 4) == tf_crc(record, length) &&
                  tf_read_event((tf_span){ record, record + length }, &f);
        if (!f.whole) break;
        f.records++;
        at += 16 + length;
    }
    return f;
}

/* Value number `index` of a tag; NULL: there are fewer. */
static inline const tf_value *tf_find(const tf_file *f, const char *tag, int index)
{
    for (int i = 0; i < f->count; i++)
        if (strcmp(f->values[i].tag, tag) == 0 && index-- == 0) return &f->values[i];
    return NULL;
}

static inline int tf_count(const tf_file *f, const char *tag)
{
    int n = 0;
    while (tf_find(f, tag, n) != NULL) n++;
    return n;
}

static inline tf_file tf_read_file(const char *path)
{
    static unsigned char data[1 << 24];
    FILE *file = fopen(path, "rb");
    size_t bytes = file != NULL ? fread(data, 1, sizeof data, file) : 0;
    if (file != NULL) fclose(file);
    return tf_read(data, bytes);
}

#endif
