/* tile_map.c: from a tile to the whole it was cut from and back. Everything follows from the corner of each tile, which
 * sl_graph_tile recorded, and from the order of the tiles: row-major, side by side in the list of parameters. */
#include <string.h>

#include "ir/op_rows.h"
#include "ir/sparse.h"
#include "ir/tile.h"

const char *sl_whole_name(const sluice_graph *g, int parameter)
{
    const sl_parameter *p = &g->parameters[parameter];
    return p->whole != NULL ? p->whole : p->name;
}

const sl_shape *sl_whole_shape(const sluice_graph *g, int parameter)
{
    const sl_parameter *p = &g->parameters[parameter];
    return p->whole != NULL ? &p->whole_shape : sl_parameter_shape(g, parameter);
}

/* Elements of one row. A vector is a column of rows of one element, so that cutting it is cutting rows. */
static int64_t width_of(const sl_shape *s)
{
    return s->rank < 2 ? 1 : sl_shape_last(s);
}

int64_t sl_parameter_whole_element(const sluice_graph *g, int parameter, int64_t element)
{
    const sl_parameter *p = &g->parameters[parameter];
    if (p->whole == NULL) return element;
    int64_t width = width_of(&g->values[p->value].shape);
    return (p->row0 + element / width) * width_of(&p->whole_shape) + p->col0 + element % width;
}

int sl_graph_find_whole(const sluice_graph *g, const char *name)
{
    for (int p = 0; p < g->parameter_count; p++)
        if (strcmp(sl_whole_name(g, p), name) == 0) return p;
    return -1;
}

int sl_whole_end(const sluice_graph *g, int first)
{
    const char *whole = g->parameters[first].whole;
    int end = first + 1;
    /* tiles of one whole share one string */
    while (whole != NULL && end < g->parameter_count && g->parameters[end].whole == whole) end++;
    return end;
}

/* The last of tiles [first, end) whose corner is not after (row, column) in row-major order. The first tile's never
 * is. */
static int last_corner(const sluice_graph *g, int first, int end, int64_t row, int64_t column)
{
    while (end - first > 1) {
        int middle = first + (end - first) / 2;
        const sl_parameter *p = &g->parameters[middle];
        if (p->row0 < row || (p->row0 == row && p->col0 <= column))
            first = middle;
        else
            end = middle;
    }
    return first;
}

sl_tile_run sl_whole_run(const sluice_graph *g, int first, int64_t element, int64_t most)
{
    sl_tile_run run = { first, element, sl_parameter_elements(g, first) - element };
    if (g->parameters[first].whole != NULL) {
        int64_t whole_width = width_of(&g->parameters[first].whole_shape);
        int64_t row = element / whole_width, column = element % whole_width;
        int end = sl_whole_end(g, first);
        int band = last_corner(g, first, end, row, whole_width); /* a tile among those that hold this row */
        run.parameter = last_corner(g, first, end, g->parameters[band].row0, column);
        const sl_parameter *tile = &g->parameters[run.parameter];
        int64_t width = width_of(&g->values[tile->value].shape);
        run.element = (row - tile->row0) * width + column - tile->col0;
        /* full-width tiles are contiguous in the whole, others row by row */
        run.count = width == whole_width ? tile->count - run.element : width - (column - tile->col0);
    }
    if (run.count > most) run.count = most;
    return run;
}
