/* graph_interpreter.h: runs a graph in double precision, slowly and plainly, so that autodiff can be held to finite
 * differences, and a graph in 16 bits to the same one in f32. */
#ifndef SLUICE_TEST_GRAPH_INTERPRETER_H
#define SLUICE_TEST_GRAPH_INTERPRETER_H

#include "ir/graph.h"

typedef struct interpreter {
    const sluice_graph *graph;
    double **data; /* per value; views point into their storage */
    bool rounds;   /* what is stored is rounded to the value's 16-bit type; false: types are ignored */
} interpreter;

/* All values zero, no rounding. Memory is the C library's: the allocator under test is not involved. */
void interpreter_open(interpreter *in, const sluice_graph *g);
void interpreter_close(interpreter *in);
/* As a value of the type holds it. */
double interpreter_rounded(double x, sluice_dtype type);
/* Runs nodes [first, last). False on an op it does not know. */
bool interpreter_run(interpreter *in, int first, int last);

#endif
