/* test.h: a small test runner. A test states one fact in its name; TEST registers it, main runs all or those named.
 *
 * Output is one line per failed or skipped test and a closing "N passed, N failed, N skipped". A skip needs a reason;
 * tests/run fails on skips that tests/expected-skips does not list. */
#ifndef SLUICE_TEST_H
#define SLUICE_TEST_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct test_case {
    const char *name;
    void (*run)(void);
    struct test_case *next;
} test_case;

extern test_case *test_cases;
extern int test_failures; /* of the running test */
extern const char *test_skip_reason;

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
        static test_case c = { #name_, test_##name_, NULL };                                                           \
        test_register(&c);                                                                                             \
    }                                                                                                                  \
    static void test_##name_(void)

#define SKIP(reason_)                                                                                                  \
    do {                                                                                                               \
        test_skip_reason = (reason_);                                                                                  \
        return;                                                                                                        \
    } while (0)

#define CHECK(cond_)                                                                                                   \
    do {                                                                                                               \
        if (!(cond_)) test_fail(__FILE__, __LINE__, "%s", #cond_);                                                     \
    } while (0)
#define CHECK_EQ(a_, b_)                                                                                               \
    do {                                                                                                               \
        long long a__ = (long long)(a_), b__ = (long long)(b_);                                                        \
        if (a__ != b__) test_fail(__FILE__, __LINE__, "%s == %s: %lld, %lld", #a_, #b_, a__, b__);                     \
    } while (0)
#define CHECK_STR(a_, b_)                                                                                              \
    do {                                                                                                               \
        const char *a__ = (a_), *b__ = (b_);                                                                           \
        if (strcmp(a__, b__) != 0) test_fail(__FILE__, __LINE__, "%s: \"%s\", expected \"%s\"", #a_, a__, b__);        \
    } while (0)
#define CHECK_CONTAINS(text_, part_)                                                                                   \
    do {                                                                                                               \
        const char *t__ = (text_), *p__ = (part_);                                                                     \
        if (strstr(t__, p__) == NULL) test_fail(__FILE__, __LINE__, "\"%s\" lacks \"%s\"", t__, p__);                  \
    } while (0)
#define CHECK_NEAR(a_, b_, tolerance_)                                                                                 \
    do {                                                                                                               \
        double a__ = (a_), b__ = (b_), t__ = (tolerance_);                                                             \
        if (!(fabs(a__ - b__) <= t__))                                                                                 \
            test_fail(__FILE__, __LINE__, "%s = %.9g, expected %.9g +- %g", #a_, a__, b__, t__);                       \
    } while (0)
/* Ends the test at once when the status is not OK. */
#define REQUIRE_OK(call_)                                                                                              \
    do {                                                                                                               \
        sluice_status s__ = (call_);                                                                                   \
        if (s__ != SLUICE_OK) {                                                                                        \
            test_fail(__FILE__, __LINE__, "%s: status %d: %s", #call_, (int)s__, sluice_error());                      \
            return;                                                                                                    \
        }                                                                                                              \
    } while (0)
#define REQUIRE(cond_)                                                                                                 \
    do {                                                                                                               \
        if (!(cond_)) {                                                                                                \
            test_fail(__FILE__, __LINE__, "%s", #cond_);                                                               \
            return;                                                                                                    \
        }                                                                                                              \
    } while (0)

#endif
