// What is expected of a call that the library refuses.
#ifndef CONTRASTIVE_TESTS_SUPPORT_REFUSED_HPP
#define CONTRASTIVE_TESTS_SUPPORT_REFUSED_HPP

#include <cctype>
#include <string>
#include <vector>

#include "catch.hpp"
#include "evaluate.hpp"
#include "problem.hpp"

namespace contrastive_tests {

/// Whether `word` stands in the text by itself, not as a part of a longer word or number.
inline bool has_word(const std::string& text, const std::string& word) {
  const auto is_part = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
  };
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    const bool begins = at == 0 || !is_part(text[at - 1]) || !is_part(word.front());
    const bool ends = end == text.size() || !is_part(text[end]) || !is_part(word.back());
    if (begins && ends) return true;
  }
  return false;
}

inline void check_message(const Refusal& got, const std::string& kind, const std::string& function,
                          const std::vector<std::string>& words) {
  CAPTURE(function, got.message);
  CHECK(got.kind == kind);
  const std::string after_the_name = got.message.substr(0, function.size() + 1) == function + ":"
                                         ? got.message.substr(function.size() + 1)
                                         : "";
  CHECK_FALSE(after_the_name.empty());
  for (const std::string& word : words) {
    CAPTURE(word);
    CHECK(has_word(after_the_name, word));
  }
}

/// All forms of the call throw `kind`; the message begins with the function's name and has the
/// words; nothing was written into the result.
template <class T = double>
void check_throws(const std::string& kind, const Problem& problem,
                  const std::vector<std::string>& words) {
  const Refusals got = refusals<T>(problem);
  const std::string name = describe(problem.loss).function;
  check_message(got.value, kind, name, words);
  check_message(got.grad, kind, name + "_grad", words);
  check_message(got.into, kind, name + "_grad", words);
  CHECK(got.result_is_untouched);
}

template <class T = double>
void check_refused(const Problem& problem, const std::vector<std::string>& words) {
  check_throws<T>("invalid_argument", problem, words);
}

template <class T = double>
void check_accepted(const Problem& problem) {
  const Refusals got = refusals<T>(problem);
  CAPTURE(describe(problem.loss).function, got.value.message, got.grad.message);
  CHECK(got.value.kind.empty());
  CHECK(got.grad.kind.empty());
  CHECK(got.into.kind.empty());
}

}  // namespace contrastive_tests

#endif
