// The entry point of the native unit tests: doctest's own, once for all test files, and what the sanitizers must know.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

// A scribbled length may ask malloc for more than there is: it answers null, as without a sanitizer.
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }
// As above; and forked children of a process with threads start threads of their own.
extern "C" const char* __tsan_default_options() { return "allocator_may_return_null=1:die_after_fork=0"; }
