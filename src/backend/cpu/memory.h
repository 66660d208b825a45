/* memory.h: the mapping behind one arena of the CPU backend: private memory, or a file that other processes map too. */
#ifndef SL_BACKEND_CPU_MEMORY_H
#define SL_BACKEND_CPU_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Under guard: [no access][front, canary][arena, poison][back, canary][no access]; front and back are less than a page
 * and less than SL_ALIGNMENT. Otherwise the arena begins the mapping. With a file the mapping is the file, whole and
 * from its start; other processes can reach what is without access here. */
typedef struct sl_memory {
    uint8_t *mapping; /* NULL: none */
    size_t mapping_bytes;
    uint8_t *base; /* SL_ALIGNMENT-aligned */
    size_t bytes, front_bytes, back_bytes;
    bool shared; /* a file is behind it */
} sl_memory;

/* Maps `bytes` > 0 bytes of zeros, or of poison under guard. file > 0 is emptied, gets the size of the mapping and is
 * not closed. False with errno, and with nothing mapped, on failure. */
bool sl_memory_map(sl_memory *m, size_t bytes, bool guard, int file);
/* Zero-initialised memory is fine. */
void sl_memory_unmap(sl_memory *m);
/* False where something was written between the arena and its guard pages. */
bool sl_memory_is_intact(const sl_memory *m);

#endif
