/* test.h: a small test runner. A test states one fact in its name; TEST registers it, main runs all or those named.
 *
 * A test passes when it made at least one check and none failed. What a machine may lack is a need: SKIP names it, and
 * tests/expected-skips lists which test may lack what. tests/run asks tests/needs whether the need is there and fails a
 * test that skips all the same. Checks made in a forked child count for the child alone: the parent checks its status.
 */
#ifndef SLUICE_TEST_H
#define SLUICE_TEST_H

#include <math.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct test_case {
    const char *name, *file;
    int line;
    void (*run)(void);
    struct test_case *next;
} test_case;

extern test_case *test_cases;
/* Of the running test. */
extern int test_failures;
extern _Atomic unsigned test_checks; /* also of its threads; some may get lost, but never all */
extern const char *test_skip_need, *test_skip_reason;

void test_register(test_case *c);
void test_fail(const char *file, int line, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* A fresh empty directory under the build's temporary folder, removed at exit. */
const char *test_tmpdir(void);
/* A fresh path for a folder, for loops of hundreds of saves: in memory where the machine offers that, since there each
 * fsync is free. Removed at exit. */
const char *test_memory_path(void);
/* Path of a file under ../shared/data or $SLUICE_DATA, or NULL where it is absent. */
const char *test_data(const char *name);

#define TEST(name_)                                                                                                    \
    static void test_##name_(void);                                                                                    \
    __attribute__((constructor)) static void register_##name_(void)                                                    \
    {                                                                                                                  \
        static test_case c = { .name = #name_, .file = __FILE__, .line = __LINE__, .run = test_##name_ };              \
        test_register(&c);                                                                                             \
    }                                                                                                                  \
    static void test_##name_(void)

/* need_: a word that tests/needs knows; the line "test: need" stands in tests/expected-skips. */
#define SKIP(need_, reason_)                                                                                           \
    do {                                                                                                               \
        test_skip_need = #need_;                                                                                       \
        test_skip_reason = (reason_);                                                                                  \
        return;                                                                                                        \
    } while (0)

static inline void test_checked(void)
{
    atomic_store_explicit(&test_checks, atomic_load_explicit(&test_checks, memory_order_relaxed) + 1,
                          memory_order_relaxed);
}

/* ---- integers: compared as numbers, whatever their types; -1 is not UINT64_MAX ---- */

typedef struct test_integer {
    bool negative;
    unsigned long long bits; /* of the number in two's complement */
} test_integer;

static inline test_integer test_signed(long long x)
{
    return (test_integer){ .negative = x < 0, .bits = (unsigned long long)x };
}

static inline test_integer test_unsigned(unsigned long long x)
{
    return (test_integer){ .negative = false, .bits = x };
}

/* Does not compile for floating point, for which there is CHECK_NEAR, and for pointers. */
/* clang-format off */
#define TEST_INTEGER(x_)                                                                                               \
    _Generic(+(x_),                                                                                                    \
        int: test_signed, long: test_signed, long long: test_signed,                                                   \
        unsigned: test_unsigned, unsigned long: test_unsigned, unsigned long long: test_unsigned)(x_)
/* clang-format on */

void test_equal(const char *file, int line, const char *a_text, const char *b_text, test_integer a, test_integer b);

/* ---- checks ---- */

#define CHECK(cond_)                                                                                                   \
    do {                                                                                                               \
        test_checked();                                                                                                \
        if (!(cond_)) test_fail(__FILE__, __LINE__, "%s", #cond_);                                                     \
    } while (0)
/* A condition that says little by itself: what is said instead when it does not hold, as printf takes it. */
#define CHECK_THAT(cond_, ...)                                                                                         \
    do {                                                                                                               \
        test_checked();                                                                                                \
        if (!(cond_)) test_fail(__FILE__, __LINE__, __VA_ARGS__);                                                      \
    } while (0)
#define CHECK_EQ(a_, b_) test_equal(__FILE__, __LINE__, #a_, #b_, TEST_INTEGER(a_), TEST_INTEGER(b_))
#define CHECK_STR(a_, b_)                                                                                              \
    do {                                                                                                               \
        test_checked();                                                                                                \
        const char *a__ = (a_), *b__ = (b_);                                                                           \
        if (strcmp(a__, b__) != 0) test_fail(__FILE__, __LINE__, "%s: \"%s\", expected \"%s\"", #a_, a__, b__);        \
    } while (0)
#define CHECK_CONTAINS(text_, part_)                                                                                   \
    do {                                                                                                               \
        test_checked();                                                                                                \
        const char *t__ = (text_), *p__ = (part_);                                                                     \
        if (strstr(t__, p__) == NULL) test_fail(__FILE__, __LINE__, "\"%s\" lacks \"%s\"", t__, p__);                  \
    } while (0)
#define CHECK_NEAR(a_, b_, tolerance_)                                                                                 \
    do {                                                                                                               \
        test_checked();                                                                                                \
        double a__ = (a_), b__ = (b_), t__ = (tolerance_);                                                             \
        if (!(fabs(a__ - b__) <= t__))                                                                                 \
            test_fail(__FILE__, __LINE__, "%s = %.9g, expected %.9g +- %g", #a_, a__, b__, t__);                       \
    } while (0)
/* Ends the test at once when the status is not OK. */
#define REQUIRE_OK(call_)                                                                                              \
    do {                                                                                                               \
        test_checked();                                                                                                \
        sluice_status s__ = (call_);                                                                                   \
        if (s__ != SLUICE_OK) {                                                                                        \
            test_fail(__FILE__, __LINE__, "%s: status %d: %s", #call_, (int)s__, sluice_error());                      \
            return;                                                                                                    \
        }                                                                                                              \
    } while (0)
#define REQUIRE(cond_)                                                                                                 \
    do {                                                                                                               \
        test_checked();                                                                                                \
        if (!(cond_)) {                                                                                                \
            test_fail(__FILE__, __LINE__, "%s", #cond_);                                                               \
            return;                                                                                                    \
        }                                                                                                              \
    } while (0)

#endif
