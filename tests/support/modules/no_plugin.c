/* no_plugin.c: a shared library that is no part of sluice. */
__attribute__((visibility("default"))) int sluice_test_is_no_plugin = 1;
