/* wholes.h: which elements of a parameter that was cut into tiles each rank owns, in the order of the whole.
 *
 * A tile is owned in runs of its own elements; rows of a tile lie apart in the whole. The runs are listed once, per
 * rank and in increasing order, so that the rest of this folder sees a tensor like any other. */
#ifndef SL_CHECKPOINT_WHOLES_H
#define SL_CHECKPOINT_WHOLES_H

#include "core/arena.h"
#include "ir/tile.h"
#include "plan/plan.h"

typedef struct sl_owned_runs {
    sl_range *runs; /* of rank r: runs[first[r] .. first[r + 1]) */
    int64_t *first; /* rank_count + 1 entries */
} sl_owned_runs;

typedef struct sl_wholes {
    sl_arena arena; /* owns everything below */
    sl_owned_runs *list;
    int count, capacity;
    int newest_parameter; /* first tile of list[count - 1]: slots of a parameter are cut like it */
} sl_wholes;

void sl_wholes_init(sl_wholes *w);
void sl_wholes_free(sl_wholes *w);
/* Lists the runs of the whole whose first tile is `parameter`; *index gets its place. */
sluice_status sl_wholes_add(sl_wholes *w, const sl_plan *p, int parameter, int *index);
int64_t sl_wholes_owned_count(const sl_wholes *w, int index, int rank);
sl_range sl_wholes_owned(const sl_wholes *w, int index, int rank, int64_t i);

#endif
