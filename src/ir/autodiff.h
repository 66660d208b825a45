/* autodiff.h: what a gradient function works with. Private to ir/.
 *
 * A gradient function makes backward nodes for one forward node. It says which forward value each output is a gradient
 * for; whether that output is a fresh tensor, is added to what is already there, or goes through a temporary, is
 * decided here. */
#ifndef SL_IR_AUTODIFF_H
#define SL_IR_AUTODIFF_H

#include "ir/graph.h"

typedef struct sl_autodiff {
    sluice_graph *graph;
    sl_node node;   /* copy of the forward node being differentiated; the graph's own may move */
    int node_index; /* its index */
    int dy;         /* gradient of node.outputs[0], or of a saved value (SL_SAVED_VALUE) where only that has one */
    int *readers;   /* per forward value: operands of forward nodes that it is */
    bool *needs;    /* per forward value: a trainable parameter reaches it */
    int *gradient;  /* per forward activation: its gradient so far, -1: none yet */
    /* Per value that is the storage of gradients: how many forward activations have their gradient in it and have not
     * been differentiated. A gradient may be added to in place only where its value is the one owner: another owner's
     * backward has still to read it as it is. The node being differentiated counts until all its backward nodes are
     * made. */
    int *owners;
    int owner_capacity;
    /* Per parameter. Contributions to its gradient go to `target` (-1: none came yet), which is its PARAM_GRAD, or an
     * f32 sum where the wire type is narrower and there are several: that is rounded to the PARAM_GRAD after the
     * last. */
    int *target;
    int *contributions; /* that are still to come */
    bool *summed;       /* target is such a sum */
} sl_autodiff;

/* A backward node under construction. */
typedef struct sl_backward {
    sl_node node;
    int joins[SL_MAX_OUTPUTS];   /* forward value whose gradient the output is to be added to afterwards; -1: it is in
                                    place */
    int arrives[SL_MAX_OUTPUTS]; /* parameter whose target the output is, -1: none */
} sl_backward;

bool sl_wants_gradient(const sl_autodiff *ad, int forward_value);
/* A node of the current layer with the forward node's attributes and no operands. */
sl_backward sl_backward_begin(const sl_autodiff *ad, sl_op op);
void sl_backward_read(sl_backward *b, int value);
/* The next output is a gradient of forward_value; absent where that is -1 or wants no gradient. */
sluice_status sl_backward_write(sl_autodiff *ad, sl_backward *b, int forward_value);
/* Appends the node, and those that add temporaries to existing gradients. */
sluice_status sl_backward_end(sl_autodiff *ad, sl_backward *b);
/* `gradient`, an existing value of forward_value's shape, is a contribution as it is: no node unless there is a sum. */
sluice_status sl_backward_pass(sl_autodiff *ad, int forward_value, int gradient);
/* The same for a `gradient` of another shape with the same elements: a view of it is the contribution. */
sluice_status sl_backward_view(sl_autodiff *ad, int forward_value, int gradient);
/* All readers of dy are made; from here on it is the gradient of `output`, another one of the node's. */
void sl_backward_continue(sl_autodiff *ad, int output);

#endif
