/* labels.c: see labels.h. */
#include "data/labels.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/grow.h"
#include "core/hash.h"
#include "core/utf8.h"

/* The slot of a label, or the free one where it would be. The table is never more than half full. */
static int64_t find_slot(const sl_label_set *s, const char *text)
{
    uint64_t at = sl_hash_text(text);
    for (at ^= at >> 32;; at++) {
        int64_t slot = (int64_t)(at % (uint64_t)s->slot_count);
        if (s->slots[slot] == 0 || strcmp(s->names[s->slots[slot] - 1], text) == 0) return slot;
    }
}

static sluice_status fill_slots(sl_label_set *s, int64_t slot_count)
{
    int32_t *slots = sl_alloc_array((size_t)slot_count, sizeof *slots, "labels");
    if (slots == NULL) return SLUICE_ERR_NO_MEMORY;
    sl_free(s->slots);
    s->slots = slots;
    s->slot_count = slot_count;
    for (int64_t i = 0; i < s->count; i++) slots[find_slot(s, s->names[i])] = (int32_t)i + 1;
    return SLUICE_OK;
}

static sluice_status grow(sl_label_set *s)
{
    if (s->count < s->capacity) return SLUICE_OK;
    SL_TRY(SL_GROW(s->names, s->capacity, s->count + 1, 64, "labels"));
    return fill_slots(s, 4 * s->capacity);
}

int32_t sl_labels_find(const sl_label_set *s, const char *text)
{
    return s->count > 0 ? s->slots[find_slot(s, text)] - 1 : -1;
}

sluice_status sl_labels_add(sl_label_set *s, const char *text, int32_t *id)
{
    *id = sl_labels_find(s, text);
    if (*id >= 0 || s->count == SL_MOST_LABELS) return SLUICE_OK;
    SL_TRY(grow(s));
    char *name = sl_strdup(text, "label");
    if (name == NULL) return SLUICE_ERR_NO_MEMORY;
    s->slots[find_slot(s, text)] = (int32_t)s->count + 1;
    *id = (int32_t)s->count;
    s->names[s->count++] = name;
    return SLUICE_OK;
}

/* ---- order ---- */

typedef struct ranked_label {
    char *name;
    long long value;
    int32_t before;
} ranked_label;

static int by_bytes(const void *a, const void *b)
{
    return strcmp(((const ranked_label *)a)->name, ((const ranked_label *)b)->name);
}

/* "1" and "01" are different labels of one value. */
static int by_value(const void *a, const void *b)
{
    const ranked_label *x = a, *y = b;
    if (x->value != y->value) return x->value < y->value ? -1 : 1;
    return by_bytes(a, b);
}

static bool read_values(ranked_label *ranked, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        char *end;
        ranked[i].value = strtoll(ranked[i].name, &end, 10);
        if (end == ranked[i].name || *end != '\0' || strlen(ranked[i].name) > 18) return false;
    }
    return true;
}

sluice_status sl_labels_sort(sl_label_set *s, int32_t **map)
{
    ranked_label *ranked = sl_alloc_array((size_t)s->count, sizeof *ranked, "order of labels");
    *map = sl_alloc_array((size_t)s->count, sizeof **map, "order of labels");
    if (ranked == NULL || *map == NULL) {
        sl_free(ranked);
        sl_free(*map);
        return SLUICE_ERR_NO_MEMORY;
    }
    for (int64_t i = 0; i < s->count; i++) ranked[i] = (ranked_label){ s->names[i], 0, (int32_t)i };
    bool numbers = read_values(ranked, s->count);
    if (s->count > 0) qsort(ranked, (size_t)s->count, sizeof *ranked, numbers ? by_value : by_bytes);
    for (int64_t i = 0; i < s->count; i++) {
        s->names[i] = ranked[i].name;
        (*map)[ranked[i].before] = (int32_t)i;
    }
    sl_free(ranked);
    sluice_status st = s->slot_count > 0 ? fill_slots(s, s->slot_count) : SLUICE_OK;
    if (st != SLUICE_OK) sl_free(*map);
    return st;
}

void sl_labels_free(sl_label_set *s)
{
    for (int64_t i = 0; i < s->count; i++) sl_free(s->names[i]);
    sl_free((void *)s->names);
    sl_free(s->slots);
    *s = (sl_label_set){ .names = NULL };
}

sl_label_list sl_labels_list(const sl_label_set *s)
{
    sl_label_list list = { "" };
    size_t used = 0;
    for (int64_t i = 0; i < s->count; i++) {
        sl_shown name = sl_show(s->names[i]);
        if (i == 8 || used + strlen(name.text) > sizeof list.text - 8) {
            snprintf(list.text + used, sizeof list.text - used, ", ...");
            break;
        }
        used += (size_t)snprintf(list.text + used, sizeof list.text - used, "%s%s", i > 0 ? ", " : "", name.text);
    }
    return list;
}
