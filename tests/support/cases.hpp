// Reader of the reference files; their format is described in reference/README.md.
#ifndef CONTRASTIVE_TESTS_SUPPORT_CASES_HPP
#define CONTRASTIVE_TESTS_SUPPORT_CASES_HPP

#include <fstream>
#include <iterator>
#include <locale>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "problem.hpp"

namespace contrastive_tests {

constexpr const char* reference_files[] = {"info_nce.txt", "hard_negatives.txt", "clip.txt",
                                           "siglip.txt",   "geometry.txt",       "views.txt"};

struct CaseName {
  std::string loss = {};
  std::string name = {};
};

/// A case with what it should come to.
struct Case {
  CaseName name = {};
  Problem problem = {};
  Answer expected = {};
};

namespace reader {

inline Loss loss_named(const std::string& name) {
  const std::pair<const char*, Loss> names[] = {
      {"info_nce", Loss::info_nce},
      {"hard_negative", Loss::hard_negative},
      {"clip", Loss::clip},
      {"siglip", Loss::siglip},
      {"nt_xent", Loss::nt_xent},
      {"sup_con", Loss::sup_con},
      {"info_nce_logits", Loss::info_nce_logits},
      {"clip_logits", Loss::clip_logits},
      {"mi_bound", Loss::mutual_information},
      {"triplet", Loss::triplet},
      {"alignment", Loss::alignment},
      {"uniformity", Loss::uniformity},
  };
  for (const auto& [text, loss] : names)
    if (name == text) return loss;
  throw std::runtime_error("no loss is called " + name);
}

template <class T>
T next(std::istream& in) {
  T x{};
  if (!(in >> x)) throw std::runtime_error("a number is missing");
  return x;
}

template <class T>
std::vector<T> next_list(std::istream& in) {
  std::vector<T> list(next<std::size_t>(in));
  for (T& x : list) x = next<T>(in);
  return list;
}

inline Matrix next_matrix(std::istream& in) {
  const Index rows = next<Index>(in);
  const Index cols = next<Index>(in);
  Matrix m(rows, cols);
  for (Index i = 0; i < rows; ++i)
    for (Index j = 0; j < cols; ++j) m(i, j) = next<Real>(in);
  return m;
}

inline void read_scalar(std::istream& in, Problem& problem) {
  const auto key = next<std::string>(in);
  const auto value = next<double>(in);
  if (key == "temperature")
    problem.temperature = value;
  else if (key == "log_scale")
    problem.learned = true, problem.log_scale = value;
  else if (key == "max_scale")
    problem.max_scale = value < 1e6 ? value : unlimited;
  else if (key == "bias")
    problem.bias = value;
  else if (key == "margin" && problem.loss == Loss::triplet)
    problem.margin = value;
  else if (key == "margin")
    problem.positive_margin = value;
  else if (key == "label_smoothing")
    problem.label_smoothing = value;
  else if (key == "false_negative_margin")
    problem.false_negative_margin = value;
  else if (key == "alpha")
    problem.alpha = value;
  else if (key == "t")
    problem.t = value;
  else
    throw std::runtime_error("unknown scalar " + key);
}

inline void read_word(std::istream& in, Problem& problem) {
  const auto key = next<std::string>(in);
  const auto value = next<std::string>(in);
  if (key == "similarity" && value == "cosine")
    problem.cosine = true;
  else if (key == "similarity" && value == "dot")
    problem.cosine = false;
  else if (key == "scope" && value == "own")
    problem.own_scope = true;
  else if (key == "scope" && value == "shared")
    problem.own_scope = false;
  else if (key == "decoupled" && value == "true")
    problem.decoupled = true;
  else
    throw std::runtime_error("unknown word " + key + " " + value);
}

inline void read_list(std::istream& in, Problem& problem) {
  const auto key = next<std::string>(in);
  if (key == "query_ids")
    problem.query_ids = next_list<std::int64_t>(in);
  else if (key == "pos_ids")
    problem.pos_ids = next_list<std::int64_t>(in);
  else if (key == "neg_ids")
    problem.neg_ids = next_list<std::int64_t>(in);
  else if (key == "offsets")
    problem.offsets = next_list<std::int64_t>(in);
  else if (key == "labels")
    problem.labels = next_list<std::int64_t>(in);
  else if (key == "weights")
    problem.weights = next_list<double>(in);
  else if (key == "log_prior")
    problem.log_prior = next_list<double>(in);
  else
    throw std::runtime_error("unknown list " + key);
}

inline void read_input(std::istream& in, Problem& problem) {
  const auto key = next<std::string>(in);
  const auto names = describe(problem.loss).inputs;
  if (problem.inputs.size() >= names.size() || key != names[problem.inputs.size()])
    throw std::runtime_error("unexpected matrix " + key);
  problem.inputs.push_back(next_matrix(in));
}

inline void read_expected(std::istream& in, Answer& expected) {
  const auto key = next<std::string>(in);
  const auto value = next<Real>(in);
  if (key == "value")
    expected.value = value;
  else if (key == "d_log_scale")
    expected.d_log_scale = value;
  else if (key == "d_bias")
    expected.d_bias = value;
  else
    throw std::runtime_error("unknown expected value " + key);
}

inline void read_gradient(std::istream& in, const Problem& problem, Answer& expected) {
  const auto key = next<std::string>(in);
  const auto names = describe(problem.loss).inputs;
  const std::size_t k = expected.gradients.size();
  if (k >= names.size() || key != "d" + names[k])
    throw std::runtime_error("unexpected gradient " + key);
  expected.gradients.push_back(next_matrix(in));
}

inline Case read_case(std::istream& in) {
  Case c;
  c.name.loss = next<std::string>(in);
  c.name.name = next<std::string>(in);
  c.problem.loss = loss_named(c.name.loss);
  for (;;) {
    const auto key = next<std::string>(in);
    if (key == "end") return c;
    if (key == "scalar")
      read_scalar(in, c.problem);
    else if (key == "word")
      read_word(in, c.problem);
    else if (key == "list")
      read_list(in, c.problem);
    else if (key == "matrix")
      read_input(in, c.problem);
    else if (key == "expect")
      read_expected(in, c.expected);
    else if (key == "expect_matrix")
      read_gradient(in, c.problem, c.expected);
    else
      throw std::runtime_error("unknown key " + key);
  }
}

}  // namespace reader

/// All cases of one file. Throws std::runtime_error, with the case's name, on what it cannot read.
inline std::vector<Case> read_cases(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot open " + path);
  std::stringstream text;
  text.imbue(std::locale::classic());
  for (std::string line; std::getline(file, line);)
    if (line.empty() || line.front() != '#') text << line << '\n';
  std::vector<Case> cases;
  for (std::string word; text >> word;) {
    if (word != "case") throw std::runtime_error(path + ": expected a case, not " + word);
    try {
      cases.push_back(reader::read_case(text));
    } catch (const std::exception& error) {
      const std::string after = cases.empty() ? "the start" : cases.back().name.name;
      throw std::runtime_error(path + ", the case after " + after + ": " + error.what());
    }
  }
  return cases;
}

inline std::vector<Case> read_all_cases() {
  std::vector<Case> all;
  for (const char* file : reference_files) {
    std::vector<Case> cases = read_cases(std::string(CONTRASTIVE_REFERENCE_DIR) + "/" + file);
    std::move(cases.begin(), cases.end(), std::back_inserter(all));
  }
  return all;
}

}  // namespace contrastive_tests

#endif
