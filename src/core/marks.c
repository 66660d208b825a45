/* marks.c: marks.h. */
#include "core/marks.h"

#include "core/alloc.h"

sluice_status sl_marks_create(sl_marks *m, int size)
{
    size_t all = 0;
    int count = size > 0 ? size : 1;
    *m = (sl_marks){ .levels = 0 };
    do {
        count = (count - 1) / 64 + 1;
        m->words[m->levels++] = count;
        all += (size_t)count;
    } while (count > 1);
    uint64_t *bits = sl_alloc_array(all, sizeof *bits, "set of numbers");
    if (bits == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int k = 0; k < m->levels; bits += m->words[k++]) m->level[k] = bits;
    return SLUICE_OK;
}

void sl_marks_destroy(sl_marks *m)
{
    sl_free(m->level[0]);
    *m = (sl_marks){ .levels = 0 };
}

bool sl_marks_has(const sl_marks *m, int i)
{
    return (m->level[0][i >> 6] >> (i & 63) & 1u) != 0;
}

void sl_marks_set(sl_marks *m, int i)
{
    for (int k = 0; k < m->levels; k++, i >>= 6) {
        uint64_t *word = &m->level[k][i >> 6], before = *word;
        *word |= (uint64_t)1 << (i & 63);
        if (before != 0) return; /* the levels above know of the word */
    }
}

void sl_marks_clear(sl_marks *m, int i)
{
    for (int k = 0; k < m->levels; k++, i >>= 6) {
        uint64_t *word = &m->level[k][i >> 6];
        *word &= ~((uint64_t)1 << (i & 63));
        if (*word != 0) return;
    }
}

/* The first number below the word `i` of level `k`, which is not 0. */
static int first_below(const sl_marks *m, int k, int i)
{
    for (; k >= 0; k--) i = (i << 6) + __builtin_ctzll(m->level[k][i]);
    return i;
}

static int last_below(const sl_marks *m, int k, int i)
{
    for (; k >= 0; k--) i = (i << 6) + 63 - __builtin_clzll(m->level[k][i]);
    return i;
}

int sl_marks_next(const sl_marks *m, int i)
{
    for (int k = 0; k < m->levels && i >> 6 < m->words[k]; k++) {
        uint64_t rest = m->level[k][i >> 6] >> (i & 63) << (i & 63);
        if (rest != 0) return first_below(m, k - 1, (i >> 6 << 6) + __builtin_ctzll(rest));
        i = (i >> 6) + 1; /* from the next word on */
    }
    return -1;
}

int sl_marks_previous(const sl_marks *m, int i)
{
    for (int k = 0; k < m->levels && i >= 0; k++) {
        uint64_t rest = m->level[k][i >> 6] << (63 - (i & 63)) >> (63 - (i & 63));
        if (rest != 0) return last_below(m, k - 1, (i >> 6 << 6) + 63 - __builtin_clzll(rest));
        i = (i >> 6) - 1;
    }
    return -1;
}
