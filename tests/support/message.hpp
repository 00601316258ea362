// What a call says when it refuses its arguments.
#ifndef CONTRASTIVE_TESTS_SUPPORT_MESSAGE_HPP
#define CONTRASTIVE_TESTS_SUPPORT_MESSAGE_HPP

#include <stdexcept>
#include <string>

namespace contrastive_tests {

/// The message of the std::invalid_argument that call() throws, or nothing.
template <class Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

}  // namespace contrastive_tests

#endif
