// How the library refuses bad input: one exception with a message that names function, argument
// and numbers. Without exceptions the message goes to stderr and the program aborts.
#ifndef CONTRASTIVE_DETAIL_ERROR_HPP
#define CONTRASTIVE_DETAIL_ERROR_HPP

#include <Eigen/Core>
#include <algorithm>
#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <type_traits>

#if defined(__cpp_exceptions) || defined(__EXCEPTIONS) || defined(_CPPUNWIND)
#define CONTRASTIVE_THROW(exception, message) throw exception(message)
#else
#define CONTRASTIVE_THROW(exception, message) \
  (std::fprintf(stderr, "%s\n", (message).c_str()), std::abort())
#endif

#if defined(__GNUC__)
#define CONTRASTIVE_PRINTF(first) __attribute__((format(printf, 2, first)))
#else
#define CONTRASTIVE_PRINTF(first)
#endif

namespace contrastive::detail {

using Eigen::Index;

/// What "%lld" prints.
template <class Integer>
long long number(Integer n) {
  static_assert(std::is_integral_v<Integer>);
  return static_cast<long long>(n);
}

/// "function: message". Formats are compiled faster than anything that is put together from parts,
/// and a user compiles all of them.
CONTRASTIVE_PRINTF(0)
inline std::string message_of(const char* function, const char* format, std::va_list arguments) {
  std::va_list again;
  va_copy(again, arguments);
  const int size = std::vsnprintf(nullptr, 0, format, arguments);
  std::string message(static_cast<std::size_t>((std::max)(size, 0)), '\0');
  std::vsnprintf(message.data(), message.size() + 1, format, again);
  va_end(again);
  return function + (": " + message);
}

/// Throws std::invalid_argument of a message as printf makes it.
[[noreturn]] CONTRASTIVE_PRINTF(3) inline void refuse(const char* function, const char* format,
                                                      ...) {
  std::va_list arguments;
  va_start(arguments, format);
  const std::string message = message_of(function, format, arguments);
  va_end(arguments);
  CONTRASTIVE_THROW(std::invalid_argument, message);
}

/// Throws std::overflow_error.
[[noreturn]] CONTRASTIVE_PRINTF(3) inline void refuse_overflow(const char* function,
                                                               const char* format, ...) {
  std::va_list arguments;
  va_start(arguments, format);
  const std::string message = message_of(function, format, arguments);
  va_end(arguments);
  CONTRASTIVE_THROW(std::overflow_error, message);
}

}  // namespace contrastive::detail

#endif  // CONTRASTIVE_DETAIL_ERROR_HPP
