/* pattern.h: which parameters a pattern of the user's names. */
#ifndef SL_IR_PATTERN_H
#define SL_IR_PATTERN_H

#include "ir/graph.h"

/* A file-name pattern fits the name of a parameter (of a tile: of its whole), or names of its parts as files have them. Where
 * it fits none of the graph, it is tried on what else files may call them (sluice_graph.is_called).
 *
 * named[p] of parameter p: a bit for each of its parts that is named, bit 0 of one without parts. A pattern that fits the
 * parameter's own name means all of it, unless it fits some of the parts and not the others. Returns how many it names. */
int sl_graph_match(const sluice_graph *g, const char *pattern, uint8_t *named);
/* Whether the bits are all that a parameter has. */
bool sl_graph_is_whole(const sluice_graph *g, int parameter, uint8_t named);
/* "a.q_proj.weight is a part of a.qkv_proj.weight here, ...": the reason of a refusal, where bits are some and not all. */
void sl_graph_explain_part(const sluice_graph *g, int parameter, uint8_t named, char *out, size_t bytes);

#endif
