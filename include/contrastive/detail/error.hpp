// How the library refuses bad input: one exception with a message that names function, argument
// and numbers. Without exceptions the message goes to stderr and the program aborts.
#ifndef CONTRASTIVE_DETAIL_ERROR_HPP
#define CONTRASTIVE_DETAIL_ERROR_HPP

#include <Eigen/Core>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

#if defined(__cpp_exceptions) || defined(__EXCEPTIONS) || defined(_CPPUNWIND)
#define CONTRASTIVE_THROW(exception, message) throw exception(message)
#else
#define CONTRASTIVE_THROW(exception, message) \
  (std::fprintf(stderr, "%s\n", std::string(message).c_str()), std::abort())
#endif

namespace contrastive::detail {

using Eigen::Index;

/// "name: message" as std::invalid_argument.
[[noreturn]] inline void refuse(const char* function, const std::string& message) {
  CONTRASTIVE_THROW(std::invalid_argument, std::string(function) + ": " + message);
}

/// "name: message" as std::overflow_error.
[[noreturn]] inline void refuse_overflow(const char* function, const std::string& message) {
  CONTRASTIVE_THROW(std::overflow_error, std::string(function) + ": " + message);
}

inline std::string number(double x) {
  char text[40];
  std::snprintf(text, sizeof text, "%.9g", x);
  return text;
}

inline std::string number(Index n) {
  return std::to_string(n);
}

/// "3 x 4"
inline std::string shape(Index rows, Index cols) {
  return number(rows) + " x " + number(cols);
}

}  // namespace contrastive::detail

#endif  // CONTRASTIVE_DETAIL_ERROR_HPP
