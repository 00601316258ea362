// The entry point. Catch2 version 2 makes it here; version 3 brings its own (Catch2WithMain).
#if !__has_include(<catch2/catch_test_macros.hpp>)
#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>
#endif
