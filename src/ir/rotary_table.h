/* rotary_table.h: by how much each pair of a head turns from one position to the next, and what lengthens the vectors.
 * The one place that knows the scalings of rotary embeddings: kernels of all backends take their angles from here.
 *
 * Of a head's first d = attrs.rotary.rotated dimensions pair i, of d/2, turns by f_i a position:
 *
 *   default   f_i = base^(-2i/d)
 *   linear    f_i / factor
 *   dynamic   default, with base * (factor n/N - (factor - 1))^(d/(d-2)), n = max(length, N), N = context
 *   llama3    with r = context f_i / 2 pi, the turns within the context: f_i for r > high, f_i / factor for r < low, and
 *             mixed in proportion to r between them
 *   yarn      the same idea, mixed in proportion to i between the pairs that make `high` and `low` turns, rounded outwards
 *             to whole pairs unless attrs.rotary.fractional
 *
 * Cosine and sine are multiplied by the attention factor. All in double. */
#ifndef SL_IR_ROTARY_TABLE_H
#define SL_IR_ROTARY_TABLE_H

#include "ir/op.h"

/* What the attributes come to for sequences of one length. */
typedef struct sl_rotary_rule {
    sluice_rotary_scaling scaling;
    int64_t pairs;    /* of a head that turn */
    double base;      /* dynamic: the one that follows from the length */
    double factor;    /* 1 where nothing is scaled */
    double context;   /* llama3 */
    double low, high; /* llama3: turns within the context; yarn: pairs */
    double attention; /* cosines and sines are multiplied by it */
} sl_rotary_rule;

/* Of the attributes of a ROTARY that sl_infer_rotary accepts. */
sl_rotary_rule sl_rotary_rule_of(const sl_attrs *attrs, int64_t length);
/* f_i, in radians a position. */
double sl_rotary_frequency(const sl_rotary_rule *r, int64_t i);

/* The attributes that options stand for: what they leave 0 becomes the scaling's usual number, and what its scaling does
 * not read stays 0, so that one embedding is always the same attributes. Fails for options that are NULL or not
 * initialised; sl_infer_rotary judges the numbers. */
sluice_status sl_rotary_attrs(const sluice_rotary_options *options, sl_attrs *out);

#endif
