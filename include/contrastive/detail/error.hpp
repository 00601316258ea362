// How the library refuses bad input: one exception with a message that names function, argument
// and numbers. Without exceptions the message goes to stderr and the program aborts.
#ifndef CONTRASTIVE_DETAIL_ERROR_HPP
#define CONTRASTIVE_DETAIL_ERROR_HPP

#include <Eigen/Core>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <stdexcept>
#include <string>

#if defined(__cpp_exceptions) || defined(__EXCEPTIONS) || defined(_CPPUNWIND)
#define CONTRASTIVE_THROW(exception, message) throw exception(message)
#else
#define CONTRASTIVE_THROW(exception, message) \
  (std::fprintf(stderr, "%s\n", (message).c_str()), std::abort())
#endif

namespace contrastive::detail {

using Eigen::Index;

/// A part of a message: a text, a number, or a shape as "3 x 4". Messages are put together from
/// these out of line, as the compiler spends long on chains of std::string.
class MessagePart {
 public:
  MessagePart(const char* text) : text_(text) {}  // NOLINT(google-explicit-constructor)
  MessagePart(const std::string& text)
      : text_(text.c_str()) {}  // NOLINT(google-explicit-constructor)
  explicit MessagePart(double number) : kind_(Kind::real), real_(number) {}
  explicit MessagePart(Index number) : kind_(Kind::integer), first_(number) {}
  MessagePart(Index rows, Index cols) : kind_(Kind::shape), first_(rows), second_(cols) {}

  void append_to(std::string& message) const {
    char buffer[64] = "";
    if (kind_ == Kind::real)
      std::snprintf(buffer, sizeof buffer, "%.9g", real_);
    else if (kind_ == Kind::integer)
      std::snprintf(buffer, sizeof buffer, "%lld", static_cast<long long>(first_));
    else if (kind_ == Kind::shape)
      std::snprintf(buffer, sizeof buffer, "%lld x %lld", static_cast<long long>(first_),
                    static_cast<long long>(second_));
    message += kind_ == Kind::text ? text_ : buffer;
  }

 private:
  enum class Kind { text, real, integer, shape };

  Kind kind_ = Kind::text;
  const char* text_ = "";
  double real_ = 0;
  Index first_ = 0;
  Index second_ = 0;
};

inline MessagePart number(double x) {
  return MessagePart(x);
}
inline MessagePart number(Index n) {
  return MessagePart(n);
}
inline MessagePart shape(Index rows, Index cols) {
  return MessagePart(rows, cols);
}

inline std::string message_of(const char* function, std::initializer_list<MessagePart> parts) {
  std::string message = function;
  message += ": ";
  for (const MessagePart& part : parts) part.append_to(message);
  return message;
}

/// "name: message" as std::invalid_argument.
[[noreturn]] inline void refuse(const char* function, std::initializer_list<MessagePart> parts) {
  CONTRASTIVE_THROW(std::invalid_argument, message_of(function, parts));
}

/// "name: message" as std::overflow_error.
[[noreturn]] inline void refuse_overflow(const char* function,
                                         std::initializer_list<MessagePart> parts) {
  CONTRASTIVE_THROW(std::overflow_error, message_of(function, parts));
}

}  // namespace contrastive::detail

#endif  // CONTRASTIVE_DETAIL_ERROR_HPP
