// Catch2 in whichever version is installed: 3 has many headers, 2 has one.
#ifndef CONTRASTIVE_TESTS_SUPPORT_CATCH_HPP
#define CONTRASTIVE_TESTS_SUPPORT_CATCH_HPP

#if __has_include(<catch2/catch_test_macros.hpp>)
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#else
#include <catch2/catch.hpp>
#endif

#endif
