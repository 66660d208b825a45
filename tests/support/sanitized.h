/* sanitized.h: whether the program under test carries the address sanitizer, which keeps memory and functions of its
 * own. */
#ifndef SLUICE_TEST_SANITIZED_H
#define SLUICE_TEST_SANITIZED_H

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

#endif
