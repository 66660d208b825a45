/* packing.h: which documents share a row, and which rows make an epoch.
 *
 * Best fit decreasing: documents by length, longest first, each into the row with the least room that takes it. That decision
 * looks at lengths alone, so every epoch has the same rows as far as lengths go; which of the documents of a length stands where
 * is another permutation in each epoch, and so is the order of the rows. Nothing else is kept: row r of epoch e follows from the
 * lengths, the seed and e, whatever was read before (rule 13 of the design; docs/data.md). */
#ifndef SL_DATA_PACKING_H
#define SL_DATA_PACKING_H

#include "data/data.h"

typedef struct sl_packed_rows {
    int64_t documents, rows;
    bool packs;
    int64_t *first;    /* [rows + 1]: row r has slots [first[r], first[r + 1]). NULL: row r is document r alone */
    int32_t *slots;    /* [documents]: places in `sorted` */
    int32_t *sorted;   /* [documents]: document numbers, longest first, in file order among equals */
    int32_t *class_of; /* [documents]: for a place in `sorted` the first place of the same length */
} sl_packed_rows;

/* lengths[i], 1 to capacity, are the positions that document i takes. `packs` false: a row for each. */
sluice_status sl_packing_make(const int32_t *lengths, int64_t documents, int64_t capacity, bool packs,
                              sl_packed_rows *out);
void sl_packing_free(sl_packed_rows *p);
uint64_t sl_packing_bytes(const sl_packed_rows *p);

/* Documents of a row: how many, and the k-th one in an epoch; `shuffle` false: as in no epoch, by their numbers. */
int64_t sl_packing_row_documents(const sl_packed_rows *p, int64_t row);
int64_t sl_packing_document(const sl_packed_rows *p, int64_t row, int64_t k, uint64_t seed, bool shuffle,
                            uint64_t epoch);

#endif
