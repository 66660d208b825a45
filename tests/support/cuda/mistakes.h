/* mistakes.h: wrong kernels, to see that the emulator finds them out. */
#ifndef SLUICE_TEST_MISTAKES_H
#define SLUICE_TEST_MISTAKES_H

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sl_mistake {
    const char *message; /* a part of what the emulator says before it aborts; NULL: there is nothing wrong */
    void (*launch)(void);
} sl_mistake;

extern const sl_mistake sl_mistakes[];
extern const int sl_mistake_count;

#ifdef __cplusplus
}
#endif
#endif
