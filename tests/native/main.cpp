// The entry point of the native unit tests: doctest's own, once for all test files.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>
