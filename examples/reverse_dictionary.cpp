// A reverse dictionary: from a definition to the word.
//
//   reverse_dictionary --ask "a large animal with a trunk"
//
// It reads WordNet (Debian's wordnet-base) or any file of pairs `word TAB definition`, trains a
// bi-encoder on the pairs with this library's losses, reports how often it finds words that it has
// not seen defined, and then answers questions.
//
// The encoder. A text is a bag of tokens, a token a bag of pieces (its stem and its character
// n-grams), and every piece hashes to a row of one table E. With A (texts x tokens) the weights of
// the tokens in the texts and C (tokens x pieces) those of the pieces in the tokens, both sparse,
//
//     U = C E          a vector for each token
//     H = A U          a weighted sum for each text
//     X = H / |H|      row by row; a mean would be no different, as the length is divided out
//
// and backwards, for a loss whose gradient with respect to X is dX,
//
//     dH = (dX - X <X, dX>) / |H|     row by row
//     dU = A' dH
//     dE = C' dU                      only the rows that the batch touches
//
// The loss. Definition i has to find its word among the words of the batch (InfoNCE) at a learned
// temperature; other definitions of the same word and other words of the same sense are no
// negatives. After a few epochs, the model's own worst mistakes become further candidates.
#include <unistd.h>
#include <zlib.h>
#include <CLI/CLI.hpp>

#include <Eigen/Core>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <contrastive/contrastive.hpp>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <numeric>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using RowVector = Eigen::RowVectorXf;
using Eigen::Index;

/// A std::vector that counts in int, so that its indices mix with Eigen's, which are signed.
template <class T>
struct Vec : std::vector<T> {
  using std::vector<T>::vector;
  T& operator[](Index i) { return this->data()[i]; }
  const T& operator[](Index i) const { return this->data()[i]; }
  [[nodiscard]] int count() const { return static_cast<int>(this->size()); }
};

using Text = Vec<int>;  // a text as the numbers of its tokens

struct Options {
  std::string wordnet = "/usr/share/wordnet", pairs, save, load;
  std::vector<std::string> questions;
  int epochs = 6, batch = 1024, dim = 256, heldout = 5000;
  int rows = 1 << 17;            // of the table
  int training_pairs = 1 << 30;  // at most
  std::uint64_t seed = 1;
  bool quick = false;
};

/// splitmix64: the same numbers on every platform.
struct Random {
  std::uint64_t state;

  std::uint64_t next() {
    std::uint64_t z = (state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  int below(int n) { return static_cast<int>(next() % static_cast<std::uint64_t>(n)); }
  template <class T>
  void shuffle(Vec<T>& v) {
    for (int i = v.count(); i > 1; --i) std::swap(v[i - 1], v[below(i)]);
  }
};

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// ---- The dictionary -----------------------------------------------------------------------------

/// What one sense tells about another: how far the other's words and definition count as known.
struct Link {
  int sense;
  float words, definition;
  bool is_kind = false;  // the other is what this one is a kind of
};

struct Sense {
  std::string definition, examples;
  Vec<int> words;
  Vec<Link> links;
  char part = '?';       // of speech: n, v, a, r
  bool is_name = false;  // an instance, as Everest is of mountain
};

struct Dictionary {
  Vec<std::string> words;
  Vec<float> familiarity;  // log(1 + occurrences) in WordNet's counted texts
  Vec<Sense> senses;
  std::unordered_map<std::string, int> word_ids;

  int word(const std::string& text) {
    const auto [entry, is_new] = word_ids.emplace(text, words.count());
    if (is_new) {
      words.push_back(text);
      familiarity.push_back(0);
    }
    return entry->second;
  }
};

Dictionary read_pairs(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot open " + path);
  Dictionary dictionary;
  std::unordered_map<std::string, int> senses;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty()) continue;
    const std::size_t tab = line.find('\t');
    if (tab == std::string::npos || tab == 0 || tab + 1 == line.size())
      throw std::runtime_error(path + ":" + std::to_string(number)
                               + ": expected a word, a tab and its definition");
    const auto [entry, is_new] = senses.emplace(line.substr(tab + 1), dictionary.senses.count());
    if (is_new) dictionary.senses.emplace_back().definition = entry->first;
    Vec<int>& words = dictionary.senses[entry->second].words;
    const int word = dictionary.word(line.substr(0, tab));
    if (std::find(words.begin(), words.end(), word) == words.end()) words.push_back(word);
  }
  if (dictionary.senses.count() < 2)
    throw std::runtime_error(path + ": fewer than two definitions");
  return dictionary;
}

/// "new_york" or "awake(p)" as WordNet writes it.
std::string wordnet_word(std::string text) {
  text.resize(std::min(text.size(), text.find('(')));
  for (char& c : text)
    c = c == '_' ? ' ' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

/// The examples of a gloss are its quoted parts.
void split_gloss(const std::string& gloss, Sense& sense) {
  bool quoted = false;
  for (const char c : gloss) {
    quoted = quoted != (c == '"');
    (quoted ? sense.examples : sense.definition) += c == '"' ? ' ' : c;
  }
  const auto is_padding = [](char c) { return c == ' ' || c == ';'; };
  while (!sense.definition.empty() && is_padding(sense.definition.back()))
    sense.definition.pop_back();
}

struct Pointer {
  std::string symbol, target;
};

/// One line: offset file part word-count {word id} pointer-count {symbol offset part fields} |
/// gloss
Vec<Pointer> read_synset(const std::string& line, Dictionary& dictionary, std::string& key) {
  const std::size_t bar = line.find(" | ");
  std::istringstream fields(line.substr(0, bar));
  std::string skip, part, text;
  int words = 0, pointers = 0;
  fields >> key >> skip >> part >> std::hex >> words >> std::dec;
  if (part == "s") part = "a";
  key = part + key;
  Sense& sense = dictionary.senses.emplace_back();
  sense.part = part.front();
  for (int i = 0; i < words && fields >> text >> skip; ++i)
    sense.words.push_back(dictionary.word(wordnet_word(text)));
  fields >> pointers;
  Vec<Pointer> result;
  std::string symbol, target;
  for (int i = 0; i < pointers && fields >> symbol >> target >> part >> skip; ++i)
    result.push_back({symbol, (part == "s" ? "a" : part) + target});
  if (!fields || bar == std::string::npos)
    throw std::runtime_error("not a line of WordNet's: " + line.substr(0, 60));
  split_gloss(line.substr(bar + 3), sense);
  return result;
}

/// Every ancestor's words are known of a sense (an elephant is an animal), the nearer the better.
void link_ancestors(Vec<Sense>& senses, const Vec<Vec<int>>& parents) {
  for (int s = 0; s < senses.count(); ++s) {
    Vec<int> seen{s};
    float weight = 1;
    for (int begin = 0, end = 1; begin < end && weight > 0.6f; begin = end, end = seen.count()) {
      weight *= 0.95f;
      for (int i = begin; i < end; ++i)
        for (const int parent : parents[seen[i]])
          if (std::find(seen.begin(), seen.end(), parent) == seen.end()) {
            seen.push_back(parent);
            senses[s].links.push_back({parent, weight, begin == 0 ? 0.9f : 0.0f, true});
          }
    }
  }
}

Dictionary read_wordnet(const std::string& folder) {
  Dictionary dictionary;
  Vec<Vec<Pointer>> pointers;
  std::unordered_map<std::string, int> synsets;
  std::string line, key;
  for (const char* part : {"noun", "verb", "adj", "adv"}) {
    std::ifstream file(folder + "/data." + part);
    if (!file)
      throw std::runtime_error(
          "no WordNet in " + folder
          + ": install Debian's package wordnet-base, or give --wordnet or --pairs");
    while (std::getline(file, line)) {
      if (line.empty() || line.front() == ' ') continue;  // the licence
      pointers.push_back(read_synset(line, dictionary, key));
      synsets.emplace(key, dictionary.senses.count() - 1);
    }
  }
  Vec<Vec<int>> parents(pointers.size());
  for (int s = 0; s < pointers.count(); ++s) {
    int children = 0;
    for (const Pointer& pointer : pointers[s]) {
      const auto target = synsets.find(pointer.target);
      if (target == synsets.end() || pointer.symbol == "!") continue;  // antonyms mislead
      Sense& sense = dictionary.senses[s];
      const char kind = pointer.symbol.front();
      if (pointer.symbol == "@i") sense.is_name = true;
      if (kind == '@') parents[s].push_back(target->second);
      if (kind == '+') sense.links.push_back({target->second, 0.8f, 0.8f});  // geologist: geology
      if (kind == '~' && ++children <= 20) sense.links.push_back({target->second, 0.5f, 0.5f});
      if (kind == '%')
        sense.links.push_back({target->second, 0.9f, 0.6f});  // has as a part or member
      if (std::strchr("@+~%", kind) == nullptr) sense.links.push_back({target->second, 0.6f, 0.6f});
    }
  }
  link_ancestors(dictionary.senses, parents);
  std::ifstream counts(folder + "/cntlist.rev");  // lemma%sense number count
  int number = 0;
  float count = 0;
  while (counts >> key >> number >> count) {
    const auto word = dictionary.word_ids.find(wordnet_word(key.substr(0, key.find('%'))));
    if (word != dictionary.word_ids.end()) dictionary.familiarity[word->second] += count;
  }
  for (float& f : dictionary.familiarity) f = std::log1p(f);
  return dictionary;
}

// ---- Tokens and pieces --------------------------------------------------------------------------

/// Lower-case runs of letters and digits; bytes beyond ASCII count as letters.
Vec<std::string> tokenize(const std::string& text) {
  Vec<std::string> tokens;
  std::string token;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    const unsigned char c = i < text.size() ? static_cast<unsigned char>(text[i]) : ' ';
    if (std::isalnum(c) != 0 || c >= 128) {
      token += static_cast<char>(std::tolower(c));
    } else if (!token.empty()) {
      if (token != "s" || i < 2 || text[i - 2] != '\'') tokens.push_back(token);  // the king's
      token.clear();
    }
  }
  if (tokens.empty()) tokens.push_back(text);
  return tokens;
}

/// A rough stem: enough that flies and fly, washing and washes, dance and danced meet.
std::string stem(std::string word) {
  const auto cut = [&word](std::string_view ending, std::size_t letters) {
    const bool fits = word.size() > ending.size() + 2
                      && word.compare(word.size() - ending.size(), ending.size(), ending) == 0;
    if (fits) word.resize(word.size() - letters);
    return fits;
  };
  if (!cut("ies", 2) && !cut("sses", 2) && !cut("xes", 2) && !cut("ches", 2) && !cut("shes", 2)
      && !cut("zes", 2) && !cut("ss", 0) && !cut("us", 0) && !cut("is", 0))
    cut("s", 1);
  if (cut("ing", 3) || cut("ed", 2)) {
    const std::size_t n = word.size();
    if (n > 3 && word[n - 1] == word[n - 2] && std::strchr("lsz", word[n - 1]) == nullptr)
      word.pop_back();  // running, run
  }
  if (word.size() > 3 && word.back() == 'e') word.pop_back();
  if (word.size() > 2 && word.back() == 'y') word.back() = 'i';
  return word;
}

bool is_stop_word(const std::string& word) {
  static const std::unordered_set<std::string> words{
      "a",         "an",      "the",   "of",       "in",    "on",    "at",    "to",
      "for",       "from",    "by",    "with",     "and",   "or",    "that",  "which",
      "who",       "whom",    "what",  "where",    "whose", "when",  "is",    "are",
      "was",       "were",    "be",    "been",     "it",    "being", "its",   "you",
      "your",      "this",    "these", "those",    "as",    "do",    "does",  "did",
      "has",       "have",    "had",   "can",      "could", "will",  "would", "may",
      "one",       "someone", "etc",   "esp",      "used",  "use",   "i",     "especially",
      "something", "usually", "he",    "somebody", "she",   "his",   "her",   "their",
      "they",      "some",    "any",   "there",    "into"};
  return words.count(word) != 0;
}

/// The tokens met so far, each with its pieces (rows of the table) and its weight.
struct Lexicon {
  int rows;
  std::unordered_map<std::string, int> ids;
  Vec<Vec<int>> pieces;  // the stem's row first, then those of the n-grams
  Vec<float> weights;

  int row(const std::string& piece) const {
    std::uint64_t hash = 1469598103934665603u;  // FNV-1a
    for (const char c : piece) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
    return static_cast<int>(Random{hash}.next() % static_cast<std::uint64_t>(rows));
  }

  int token(const std::string& text) {
    const auto [entry, is_new] = ids.emplace(text, pieces.count());
    if (!is_new) return entry->second;
    Vec<int>& mine = pieces.emplace_back(Vec<int>{row("=" + stem(text))});
    const std::string bounded = "<" + text + ">";
    for (std::size_t n = 3; n <= 5; ++n)
      for (std::size_t i = 0; n < bounded.size() && i + n <= bounded.size(); ++i)
        mine.push_back(row(bounded.substr(i, n)));
    weights.push_back(is_stop_word(text) ? 0.03f : 1.0f);
    return entry->second;
  }

  Text read(const std::string& text) {
    Text result;
    for (const std::string& t : tokenize(text)) result.push_back(token(t));
    return result;
  }

  /// Inverse document frequency, log((n + 1) / (df + 1)) as a share of its largest value, with
  /// df counted over stems; what none of the definitions has weighs 1.
  void weigh(const Vec<Text>& definitions, const Vec<char>& is_held) {
    Vec<int> df(static_cast<std::size_t>(rows)), last(df.size(), -1);
    float count = 1;
    for (int d = 0; d < definitions.count(); ++d) {
      if (is_held[d] != 0) continue;
      ++count;
      for (const int t : definitions[d])
        if (const int r = pieces[t][0]; std::exchange(last[r], d) != d) ++df[r];
    }
    for (int t = 0; t < weights.count(); ++t) {
      const float idf = std::log(count / static_cast<float>(df[pieces[t][0]] + 1));
      weights[t] *= std::max(idf / std::log(count), 1e-3f);
    }
  }
};

// ---- Linear algebra that gives the same bits with any number of threads
// ----------------------------

/// A sparse matrix, row after row.
struct Sparse {
  Vec<int> start{0}, column;
  Vec<float> value;

  void add(int c, float v) {
    column.push_back(c);
    value.push_back(v);
  }
  void end_row() { start.push_back(column.count()); }
  [[nodiscard]] int rows() const { return start.count() - 1; }
};

Sparse transpose(const Sparse& a, int columns) {
  Sparse t;
  t.start.assign(static_cast<std::size_t>(columns) + 1, 0);
  t.column.resize(a.column.size());
  t.value.resize(a.value.size());
  for (const int c : a.column) ++t.start[c + 1];
  std::partial_sum(t.start.begin(), t.start.end(), t.start.begin());
  Vec<int> next = t.start;
  for (int r = 0; r < a.rows(); ++r)
    for (int k = a.start[r]; k < a.start[r + 1]; ++k) {
      const int at = next[a.column[k]]++;
      t.column[at] = r;
      t.value[at] = a.value[k];
    }
  return t;
}

/// Row r of a x.
void row_product(const Sparse& a, int r, const Matrix& x, Eigen::Ref<RowVector> result) {
  result.setZero();
  for (int k = a.start[r]; k < a.start[r + 1]; ++k) result += a.value[k] * x.row(a.column[k]);
}

Matrix product(const Sparse& a, const Matrix& x) {
  Matrix result(a.rows(), x.cols());
#pragma omp parallel for schedule(dynamic, 64)
  for (int r = 0; r < a.rows(); ++r) row_product(a, r, x, result.row(r));
  return result;
}

/// x y, in strips of rows whose bounds do not depend on the number of threads.
template <class X, class Y>
Matrix product(const X& x, const Y& y) {
  Matrix result(x.rows(), y.cols());
  constexpr Index strip = 64;
#pragma omp parallel for schedule(dynamic, 1)
  for (Index r = 0; r < x.rows(); r += strip) {
    const Index n = std::min(strip, x.rows() - r);
    result.middleRows(r, n).noalias() = x.middleRows(r, n) * y;
  }
  return result;
}

/// Numbers to learn, with Adam's moments; each row counts its own steps, so that a row that is
/// seldom touched is corrected for its own start and loses nothing while it rests.
struct Parameters {
  Matrix value, mean, square;
  Vec<int> steps;

  explicit Parameters(Matrix start) : value(std::move(start)) {}

  /// Before the first update. (A model that only answers needs no moments.)
  void begin() {
    mean = square = Matrix::Zero(value.rows(), value.cols());
    steps.assign(static_cast<std::size_t>(value.rows()), 0);
  }
  void update(Index r, const Eigen::Ref<const RowVector>& gradient, double rate) {
    constexpr float b1 = 0.9f, b2 = 0.999f;
    const int t = ++steps[r];
    mean.row(r) = b1 * mean.row(r) + (1 - b1) * gradient;
    square.row(r) = b2 * square.row(r) + (1 - b2) * gradient.cwiseAbs2();
    const auto size = static_cast<float>(rate / (1 - std::pow(b1, t)));
    const auto correction = static_cast<float>(1 / (1 - std::pow(b2, t)));
    value.row(r).array() -=
        size * mean.row(r).array() / ((correction * square.row(r).array()).sqrt() + 1e-8f);
  }
  void update(const Matrix& gradient, double rate) {
    for (Index r = 0; r < value.rows(); ++r) update(r, gradient.row(r), rate);
  }
};

// ---- The encoder --------------------------------------------------------------------------------

/// What a pass over some texts leaves for the way back.
struct Pass {
  Sparse texts, tokens;  // A and C, over the tokens and rows of this pass alone
  Vec<int> rows;         // which rows of the table those are
  Matrix h, x;
};

class Encoder {
 public:
  Lexicon lexicon;
  Parameters table;

  explicit Encoder(Matrix e)
      : lexicon{static_cast<int>(e.rows()), {}, {}, {}}, table(std::move(e)) {}

  Pass forward(const Vec<const Text*>& texts) {
    Pass pass;
    gather(texts, pass);
    Sparse pieces = pass.tokens;
    for (int& c : pieces.column) c = pass.rows[c];
    pass.h = product(pass.texts, product(pieces, table.value));
    pass.x = pass.h;
    for (Index r = 0; r < pass.x.rows(); ++r) pass.x.row(r) /= length(pass.h.row(r));
    return pass;
  }

  /// One step of Adam, given the gradient with respect to pass.x.
  void backward(const Pass& pass, const Matrix& dx, double rate) {
    Matrix dh = dx;
    for (Index r = 0; r < dh.rows(); ++r)
      dh.row(r) =
          (dx.row(r) - pass.x.row(r) * pass.x.row(r).dot(dx.row(r))) / length(pass.h.row(r));
    const Matrix du = product(transpose(pass.texts, pass.tokens.rows()), dh);
    const Sparse back = transpose(pass.tokens, pass.rows.count());
#pragma omp parallel for schedule(dynamic, 64)
    for (int r = 0; r < back.rows(); ++r) {
      RowVector de(du.cols());
      row_product(back, r, du, de);
      table.update(pass.rows[r], de, rate);
    }
  }

  /// The vectors of many texts, in portions.
  Matrix encode(const Vec<Text>& texts) {
    Matrix result(texts.count(), table.value.cols());
    for (int begin = 0; begin < texts.count(); begin += 32768) {
      const int n = std::min(32768, texts.count() - begin);
      Vec<const Text*> some;
      for (int i = 0; i < n; ++i) some.push_back(&texts[begin + i]);
      result.middleRows(begin, n) = forward(some).x;
    }
    return result;
  }

 private:
  Vec<int> token_slot_, row_slot_;  // where a token or row is in the pass; -1 between passes

  static float length(const Eigen::Ref<const RowVector>& row) {
    return std::max(row.norm(), 1e-12f);
  }

  /// A and C of some texts. The n of a token's n-grams weigh 1 / sqrt(n) each, so that together
  /// they are about as long as its stem.
  void gather(const Vec<const Text*>& texts, Pass& pass) {
    token_slot_.resize(lexicon.pieces.size(), -1);
    row_slot_.resize(static_cast<std::size_t>(lexicon.rows), -1);
    Vec<int> tokens;
    const auto slot = [](int& entry, Vec<int>& list, int item) {
      if (entry < 0) {
        entry = list.count();
        list.push_back(item);
      }
      return entry;
    };
    for (const Text* text : texts) {
      for (const int t : *text) pass.texts.add(slot(token_slot_[t], tokens, t), lexicon.weights[t]);
      pass.texts.end_row();
    }
    for (const int t : tokens) {
      const Vec<int>& pieces = lexicon.pieces[t];
      const float share = 1 / std::sqrt(static_cast<float>(std::max(pieces.count() - 1, 1)));
      for (int k = 0; k < pieces.count(); ++k)
        pass.tokens.add(slot(row_slot_[pieces[k]], pass.rows, pieces[k]), k == 0 ? 1 : share);
      pass.tokens.end_row();
      token_slot_[t] = -1;
    }
    for (const int r : pass.rows) row_slot_[r] = -1;
  }
};

/// Nearly Gaussian numbers, in rows of length about 1.
Matrix random_table(int rows, int dim, Random& random) {
  Matrix e(rows, dim);
  for (Index i = 0; i < e.size(); ++i) {
    double sum = -2;
    for (int k = 0; k < 4; ++k) sum += random.uniform();
    e.data()[i] = static_cast<float>(sum * std::sqrt(3.0 / dim));
  }
  return e;
}

// ---- The data of training and of the test
// --------------------------------------------------------

struct Pair {
  int sense, word;
};

struct Data {
  Vec<Text> words, definitions, extras;  // extras: examples and words of linked senses
  Vec<Pair> training, heldout;
};

/// Senses are held out whole: neither their pairs nor others with the same definition nor links to
/// them are trained on. Of each, one of its words is the answer.
Vec<Pair> hold_out(const Vec<Sense>& senses, int wanted, Random& random, Vec<char>& is_held) {
  is_held.assign(senses.size(), 0);
  std::unordered_map<std::string, Vec<int>> same;
  Vec<int> order;
  for (int s = 0; s < senses.count(); ++s) {
    same[senses[s].definition].push_back(s);
    order.push_back(s);
  }
  random.shuffle(order);
  Vec<Pair> heldout;
  const int count = std::min(wanted, senses.count() / 5);
  for (int i = 0; count >= 2 && heldout.count() < count; ++i) {
    const Sense& sense = senses[order[i]];
    if (is_held[order[i]] != 0) continue;
    for (const int s : same[sense.definition]) is_held[s] = 1;
    heldout.push_back({order[i], sense.words[random.below(sense.words.count())]});
  }
  return heldout;
}

/// Words and definitions as tokens; the weights of the tokens come from what is not held out.
Data read_texts(const Dictionary& dictionary, const Vec<char>& is_held, Lexicon& lexicon) {
  Data data;
  for (const std::string& word : dictionary.words) data.words.push_back(lexicon.read(word));
  for (const Sense& sense : dictionary.senses)
    data.definitions.push_back(lexicon.read(sense.definition));
  lexicon.weigh(data.definitions, is_held);
  return data;
}

/// The training pairs, and what else is known of their senses: examples, words of linked senses.
void add_training(const Dictionary& dictionary, const Vec<char>& is_held, Lexicon& lexicon,
                  Data& data) {
  data.extras.resize(dictionary.senses.size());
  for (int s = 0; s < dictionary.senses.count(); ++s) {
    if (is_held[s] != 0) continue;
    const Sense& sense = dictionary.senses[s];
    for (const int w : sense.words) data.training.push_back({s, w});
    Text& extra = data.extras[s];
    if (!sense.examples.empty()) extra = lexicon.read(sense.examples);
    for (const Link& link : sense.links)
      if (is_held[link.sense] == 0 && link.definition > 0 && extra.count() < 60)
        for (const int w : dictionary.senses[link.sense].words)
          extra.insert(extra.end(), data.words[w].begin(), data.words[w].end());
  }
}

// ---- The test -----------------------------------------------------------------------------------

struct Measures {
  double recall1 = 0, recall10 = 0, mrr = 0;
};

void print_row(const std::string& name, const Measures& m, const std::string& more = "") {
  std::printf("%-17s %8.4f %9.4f %8.4f %s\n", name.c_str(), m.recall1, m.recall10, m.mrr,
              more.c_str());
  std::fflush(stdout);
}

/// Of the scores of every held-out word (columns) for every held-out definition (rows). Any word
/// of the definition's sense is right; of equal scores half count as better.
Measures measure(const Dictionary& dictionary, const Vec<Pair>& heldout, const Matrix& scores) {
  Vec<double> ranks(heldout.size());
#pragma omp parallel for schedule(dynamic, 16)
  for (int i = 0; i < heldout.count(); ++i) {
    const Vec<int>& right = dictionary.senses[heldout[i].sense].words;
    const auto is_right = [&](int j) {
      return std::find(right.begin(), right.end(), heldout[j].word) != right.end();
    };
    float best = scores(i, i);
    for (int j = 0; j < heldout.count(); ++j)
      if (scores(i, j) > best && is_right(j)) best = scores(i, j);
    int better = 0, equal = 0;
    for (int j = 0; j < heldout.count(); ++j)
      if (scores(i, j) >= best && !is_right(j)) ++(scores(i, j) > best ? better : equal);
    ranks[i] = 1 + better + 0.5 * equal;
  }
  Measures m;
  for (const double rank : ranks) {
    m.recall1 += rank <= 1;
    m.recall10 += rank <= 10;
    m.mrr += 1 / rank;
  }
  const double n = heldout.count();
  return {m.recall1 / n, m.recall10 / n, m.mrr / n};
}

Measures blind_guess(int n) {
  Measures m{1.0 / n, std::min(10.0 / n, 1.0), 0};
  for (int rank = 1; rank <= n; ++rank) m.mrr += 1.0 / rank / n;
  return m;
}

/// Cosines of TF-IDF vectors over the pieces of the texts, stems and n-grams.
Matrix tfidf_scores(const Data& data, const Lexicon& lexicon) {
  Vec<int> df(static_cast<std::size_t>(lexicon.rows)), last(df.size(), -1);
  const int texts = data.training.count();
  for (int i = 0; i < texts; ++i)
    for (const int t : data.definitions[data.training[i].sense])
      for (const int r : lexicon.pieces[t])
        if (std::exchange(last[r], i) != i) ++df[r];
  const auto add_row = [&](Sparse& m, const Text& text) {
    std::unordered_map<int, float> tf;
    for (const int t : text)
      for (const int r : lexicon.pieces[t]) tf[r] += 1;
    float square = 1e-30f;
    for (auto& [r, v] : tf) {
      v *= std::log(static_cast<float>(texts + 1) / static_cast<float>(df[r] + 1));
      square += v * v;
    }
    for (const auto& [r, v] : tf) m.add(r, v / std::sqrt(square));
    m.end_row();
  };
  Sparse questions, words;
  for (const Pair& pair : data.heldout) {
    add_row(questions, data.definitions[pair.sense]);
    add_row(words, data.words[pair.word]);
  }
  const Sparse by_row = transpose(words, lexicon.rows);
  Matrix scores = Matrix::Zero(data.heldout.count(), data.heldout.count());
#pragma omp parallel for schedule(dynamic, 16)
  for (int i = 0; i < questions.rows(); ++i)
    for (int k = questions.start[i]; k < questions.start[i + 1]; ++k)
      for (int l = by_row.start[questions.column[k]]; l < by_row.start[questions.column[k] + 1];
           ++l)
        scores(i, by_row.column[l]) += questions.value[k] * by_row.value[l];
  return scores;
}

void test(const std::string& name, const Dictionary& dictionary, const Data& data, Encoder& encoder,
          const std::string& end = "") {
  if (data.heldout.empty()) return;
  Vec<Text> definitions, words;
  for (const Pair& pair : data.heldout) {
    definitions.push_back(data.definitions[pair.sense]);
    words.push_back(data.words[pair.word]);
  }
  const Matrix q = encoder.encode(definitions);
  const Matrix w = encoder.encode(words);
  const auto quality = contrastive::alignment_uniformity(q, w, 2, 2, contrastive::Similarity::dot);
  char more[40];
  std::snprintf(more, sizeof more, "%7.3f %8.3f", static_cast<double>(quality.alignment),
                static_cast<double>(quality.uniformity));
  print_row(name, measure(dictionary, data.heldout, product(q, w.transpose())), more + end);
}

// ---- Training -----------------------------------------------------------------------------------

/// One line, rewritten while someone watches; nothing where the output goes to a file.
class Progress {
 public:
  explicit Progress(int steps) : steps_(steps) {}

  void show(int step, double loss, double temperature, double rate) {
    const double now = seconds();
    if (!is_watched_ || (now - shown_ < 0.2 && step < steps_)) return;
    shown_ = now;
    const int left = static_cast<int>((now - begin_) * (steps_ - step) / step + 0.5);
    const int width = 12, filled = width * step / steps_;
    std::fprintf(stderr, "\r[%s%s] %3d%% loss %.3f, temperature %.4f, rate %.4f, %d:%02d left ",
                 std::string(static_cast<std::size_t>(filled), '#').c_str(),
                 std::string(static_cast<std::size_t>(width - filled), '.').c_str(),
                 100 * step / steps_, loss, temperature, rate, left / 60, left % 60);
  }
  void clear() const {
    if (is_watched_) std::fprintf(stderr, "\r%79s\r", "");
  }

 private:
  int steps_;
  bool is_watched_ = isatty(STDERR_FILENO) != 0;
  double begin_ = seconds(), shown_ = 0;
};

class Trainer {
 public:
  Trainer(const Options& options, const Dictionary& dictionary, Data& data, Encoder& encoder,
          Random random)
      : dictionary_(dictionary), data_(data), encoder_(encoder), random_(random) {
    const int pairs = data.training.count();
    epochs_ = options.epochs;
    batch_ = std::clamp(pairs / 20, std::min(8, pairs), options.batch);
    steps_ = std::max(pairs / batch_, 100);  // small data more than once an epoch
    encoder.table.begin();
    log_scale_.begin();
  }

  void run() {
    Progress progress(epochs_ * steps_);
    for (int epoch = 0; epoch < epochs_; ++epoch) {
      random_.shuffle(data_.training);
      if (epoch > 0 && epoch == epochs_ - 2) mine();
      double loss = 0;
      for (int b = 0; b < steps_; ++b) {
        const double done = static_cast<double>(++step_) / (epochs_ * steps_);
        const double rate =
            0.005 * std::min(1.0, done / 0.05) * (0.5 + 0.5 * std::cos(3.14159265 * done));
        loss += train(b % (data_.training.count() / batch_) * batch_, rate);
        progress.show(step_, loss / (b + 1), std::exp(-log_scale()), rate);
      }
      progress.clear();
      char state[40];
      std::snprintf(state, sizeof state, " %6.3f %.3f", loss / steps_, std::exp(-log_scale()));
      const std::string name = "epoch " + std::to_string(epoch + 1);
      if (data_.heldout.empty()) std::printf("%s: loss, temperature %s\n", name.c_str(), state);
      test(name, dictionary_, data_, encoder_, state);
    }
  }

 private:
  const Dictionary& dictionary_;
  Data& data_;
  Encoder& encoder_;
  Random random_;
  int epochs_, batch_, steps_, step_ = 0;
  Parameters log_scale_{Matrix::Constant(1, 1, std::log(1 / 0.07f))};
  contrastive::Workspace workspace_;
  contrastive::InfoNceGradient<Matrix, Matrix, contrastive::LogScale> plain_;
  contrastive::HardNegativeGradient<Matrix, Matrix, Matrix, contrastive::LogScale> hard_;
  Vec<Vec<int>> mistakes_;  // by sense: words that the model took for it

  [[nodiscard]] double log_scale() const { return static_cast<double>(log_scale_.value(0, 0)); }

  /// The definition with some tokens left out, and at times with some of what else is known of
  /// the sense, but never the word itself.
  Text question(const Pair& pair) {
    const Text& definition = data_.definitions[pair.sense];
    Text text;
    for (const int t : definition)
      if (random_.uniform() < 0.8) text.push_back(t);
    if (text.empty()) text = definition;
    if (random_.uniform() < 0.5) return text;
    const Text& answer = data_.words[pair.word];
    for (const int t : data_.extras[pair.sense])
      if (random_.uniform() < 0.4 && std::find(answer.begin(), answer.end(), t) == answer.end())
        text.push_back(t);
    return text;
  }

  /// One step on the pairs from `first`.
  double train(int first, double rate) {
    Vec<Text> questions;
    Vec<const Text*> texts;
    Vec<std::int64_t> query_ids, pos_ids, neg_ids;
    for (int i = 0; i < batch_; ++i) {
      const Pair& pair = data_.training[first + i];
      questions.push_back(question(pair));
      query_ids.push_back(pair.sense);
      pos_ids.push_back(pair.word);
      if (mistakes_.empty() || mistakes_[pair.sense].empty()) continue;
      const Vec<int>& mistakes = mistakes_[pair.sense];
      neg_ids.push_back(mistakes[random_.below(mistakes.count())]);
    }
    for (const Text& text : questions) texts.push_back(&text);
    for (const std::int64_t word : pos_ids) texts.push_back(&data_.words[word]);
    for (const std::int64_t word : neg_ids) texts.push_back(&data_.words[word]);

    const Pass pass = encoder_.forward(texts);
    const auto q = pass.x.topRows(batch_), p = pass.x.middleRows(batch_, batch_);
    const auto n = pass.x.bottomRows(neg_ids.count());
    contrastive::SoftmaxOptions options;
    options.similarity = contrastive::Similarity::dot;  // of unit vectors
    options.query_ids = query_ids;
    options.pos_ids = pos_ids;
    const contrastive::LogScale scale{log_scale()};
    Matrix dx(pass.x.rows(), pass.x.cols());
    if (neg_ids.empty()) {
      contrastive::info_nce_loss_grad(q, p, scale, options, plain_, workspace_);
      dx << plain_.dQ, plain_.dP;
      return step(pass, dx, plain_.loss, plain_.d_log_scale, rate);
    }
    options.neg_ids = neg_ids;
    contrastive::hard_negative_loss_grad(q, p, n, scale, options, hard_, workspace_);
    dx << hard_.dQ, hard_.dP, hard_.dN;
    return step(pass, dx, hard_.loss, hard_.d_log_scale, rate);
  }

  double step(const Pass& pass, const Matrix& dx, float loss, float d_log_scale, double rate) {
    encoder_.backward(pass, dx, rate);
    log_scale_.update(Matrix::Constant(1, 1, d_log_scale), rate);
    log_scale_.value(0, 0) = contrastive::limit_log_scale(log_scale_.value(0, 0));
    return static_cast<double>(loss);
  }

  /// For every training definition the eight words nearest to it that are not its own, out of a
  /// pool drawn anew for each portion.
  void mine() {
    mistakes_.assign(data_.definitions.size(), {});
    Vec<int> senses;
    for (const Pair& pair : data_.training) senses.push_back(pair.sense);
    std::sort(senses.begin(), senses.end());
    senses.erase(std::unique(senses.begin(), senses.end()), senses.end());
    random_.shuffle(senses);
    for (int begin = 0; begin < senses.count(); begin += 4096) {
      const int n = std::min(4096, senses.count() - begin);
      Vec<int> pool;
      Vec<Text> definitions, words;
      for (int k = 0; k < std::min(8192, data_.training.count()); ++k) {
        pool.push_back(data_.training[random_.below(data_.training.count())].word);
        words.push_back(data_.words[pool.back()]);
      }
      for (int i = 0; i < n; ++i) definitions.push_back(data_.definitions[senses[begin + i]]);
      const Matrix w = encoder_.encode(words);
      const Matrix scores = product(encoder_.encode(definitions), w.transpose());
#pragma omp parallel for schedule(dynamic, 16)
      for (int i = 0; i < n; ++i) {
        const int s = senses[begin + i];
        mistakes_[s] = nearest(scores.row(i), pool, dictionary_.senses[s].words);
      }
    }
  }

  static Vec<int> nearest(const Eigen::Ref<const RowVector>& scores, const Vec<int>& pool,
                          const Vec<int>& own) {
    Vec<int> order(pool.size());
    std::iota(order.begin(), order.end(), 0);
    const int most = std::min(16, order.count());
    std::partial_sort(order.begin(), order.begin() + most, order.end(), [&](int a, int b) {
      return scores(a) != scores(b) ? scores(a) > scores(b) : a < b;
    });
    Vec<int> result;
    for (int k = 0; k < most && result.count() < 8; ++k)
      if (std::find(own.begin(), own.end(), pool[order[k]]) == own.end())
        result.push_back(pool[order[k]]);
    return result;
  }
};

// ---- Asking -------------------------------------------------------------------------------------

/// Finds words for a question, with all that the dictionary knows. A sense s of a word w scores
///
///     0.3 <q, word w> + 0.4 <q, definition s>                     the bi-encoder
///     + mean over the question's tokens t, by weight, of
///           max over the tokens u known of s of  known(s, u) max(0, <t, u>)^1.5
///     + 0.03 log(1 + occurrences of w in the texts that WordNet counted)
///     + 0.2 [s is of the kind asked for] + 0.1 [s is of the part of speech asked for]
///     - 0.1 [s is a name]
///
/// Known of a sense are its definition, its words and, at less weight, those of linked senses.
class Answerer {
 public:
  Answerer(const Dictionary& dictionary, const Data& data, Encoder& encoder)
      : dictionary_(dictionary), data_(data), encoder_(encoder) {
    Vec<Text> tokens;
    for (int t = 0; t < encoder.lexicon.pieces.count(); ++t) tokens.push_back({t});
    tokens_ = encoder.encode(tokens);
    definitions_ = encoder.encode(data.definitions);
    words_ = encoder.encode(data.words);
    collect_known();
  }

  void answer(const std::string& question) {
    const Text text = encoder_.lexicon.read(question);
    const Vec<Answer> answers = rank(question, text);
    std::printf("%s\n", question.c_str());
    for (int i = 0; i < std::min(10, answers.count()); ++i) {
      const Sense& sense = dictionary_.senses[answers[i].sense];
      std::string line = dictionary_.words[answers[i].word];
      for (const int w : sense.words)
        if (w != answers[i].word && line.size() < 20) line += ", " + dictionary_.words[w];
      line += ": " + sense.definition;
      if (line.size() > 75) line = line.substr(0, 72) + "...";
      std::printf("%3d %s\n", i + 1, line.c_str());
    }
    std::fflush(stdout);
  }

 private:
  struct Answer {
    float score;
    int word, sense;
  };
  const Dictionary& dictionary_;
  const Data& data_;
  Encoder& encoder_;
  Matrix tokens_, definitions_, words_;
  Sparse known_;            // senses x tokens
  Vec<std::string> kinds_;  // of each sense: its ancestors' words, each between two bars

  void collect_known() {
    Vec<float> weight(encoder_.lexicon.pieces.size());
    Text touched;
    const auto learn = [&](const Text& text, float w) {
      for (const int t : text) {
        if (w > 0 && weight[t] == 0) touched.push_back(t);
        weight[t] = std::max(weight[t], w);
      }
    };
    for (int s = 0; s < dictionary_.senses.count(); ++s) {
      learn(data_.definitions[s], 1);
      for (const int w : dictionary_.senses[s].words) learn(data_.words[w], 0.5f);
      std::string& kinds = kinds_.emplace_back("|");
      for (const Link& link : dictionary_.senses[s].links) {
        if (link.is_kind)
          for (const int w : dictionary_.senses[link.sense].words)
            kinds += dictionary_.words[w] + "|";
        learn(data_.definitions[link.sense], link.definition);
        for (const int w : dictionary_.senses[link.sense].words) learn(data_.words[w], link.words);
      }
      for (const int t : touched) known_.add(t, std::exchange(weight[t], 0.0f));
      touched.clear();
      known_.end_row();
    }
  }

  /// How well what is known of each sense covers the tokens of the question.
  RowVector coverage(const Text& text) {
    Vec<Text> single;
    for (const int t : text) single.push_back({t});
    const Vec<float> weights = question_weights(text);
    const float total = std::accumulate(weights.begin(), weights.end(), 0.0f);
    const Matrix question = encoder_.encode(single);
    Matrix near = product(tokens_, question.transpose());  // known tokens x question's tokens
    near = near.cwiseMax(0.0f).array().pow(1.5f);
    RowVector result = RowVector::Zero(known_.rows());
#pragma omp parallel for schedule(static, 256)
    for (int s = 0; s < known_.rows(); ++s) {
      RowVector best = RowVector::Zero(near.cols());
      for (int k = known_.start[s]; k < known_.start[s + 1]; ++k)
        best = best.cwiseMax(known_.value[k] * near.row(known_.column[k]));
      for (int i = 0; i < text.count(); ++i) result(s) += best(i) * weights[i] / total;
    }
    return result;
  }

  /// "to ..." asks for a verb, "a ..." and the like for a noun.
  static char part_asked(const std::string& question) {
    const std::string first = tokenize(question).front();
    if (first == "to") return 'v';
    const std::unordered_set<std::string> nouns{"a", "an", "the", "someone", "something", "person"};
    return nouns.count(first) != 0 ? 'n' : '-';
  }

  /// What kind of thing is asked for weighs double: in "a large animal with a trunk" the animal,
  /// the last token of the first run that has no stop word.
  Vec<float> question_weights(const Text& text) const {
    Vec<float> weights;
    for (const int t : text) weights.push_back(encoder_.lexicon.weights[t]);
    const auto matters = [](float w) { return w >= 0.05f; };
    const auto first = std::find_if(weights.begin(), weights.end(), matters);
    const auto end = std::find_if_not(first, weights.end(), matters);
    if (first != end) *(end - 1) *= 2;
    return weights;
  }

  /// What kind of thing is asked for: "person" in "someone who ...", "animal" in "a large animal
  /// with ...": the last word of the first run without a stop word.
  static std::string kind_asked(const std::string& question) {
    std::string kind;
    for (const std::string& word : tokenize(question)) {
      if (word == "someone" || word == "somebody" || word == "person") return "person";
      if (is_stop_word(word) && !kind.empty()) break;
      if (!is_stop_word(word)) kind = word;
    }
    return kind;
  }

  bool is_of_kind(int sense, const std::string& kind) const {
    return kinds_[sense].find("|" + kind + "|") != std::string::npos;
  }

  /// A word that only says the question's own words again is no answer.
  bool is_echo(const Text& word, const Text& question) const {
    const auto stem_of = [&](int t) { return encoder_.lexicon.pieces[t][0]; };
    return std::all_of(word.begin(), word.end(), [&](int t) {
      return std::any_of(question.begin(), question.end(),
                         [&](int u) { return stem_of(t) == stem_of(u); });
    });
  }

  /// The best word of each sense, best first; no word twice.
  Vec<Answer> rank(const std::string& question, const Text& text) {
    const RowVector q = encoder_.encode({text});
    const Matrix by_word = product(words_, q.transpose());
    const Matrix by_definition = product(definitions_, q.transpose());
    const RowVector covered = coverage(text);
    const char part = part_asked(question);
    const std::string kind = kind_asked(question);
    Vec<Answer> answers;
    for (int s = 0; s < dictionary_.senses.count(); ++s) {
      const Sense& sense = dictionary_.senses[s];
      Answer best{-9, 0, s};
      for (const int w : sense.words) {
        const float score = 0.3f * by_word(w, 0) + 0.03f * dictionary_.familiarity[w];
        if (score > best.score && !is_echo(data_.words[w], text)) best = {score, w, s};
      }
      best.score += 0.4f * by_definition(s, 0) + covered(s) - (sense.is_name ? 0.1f : 0.0f)
                    + (sense.part == part ? 0.1f : 0.0f) + (is_of_kind(s, kind) ? 0.2f : 0.0f);
      if (best.score > -5) answers.push_back(best);
    }
    std::sort(answers.begin(), answers.end(), [](const Answer& a, const Answer& b) {
      return a.score != b.score ? a.score > b.score : a.sense < b.sense;
    });
    std::unordered_set<int> seen;
    const auto is_again = [&seen](const Answer& a) { return !seen.insert(a.word).second; };
    answers.erase(std::remove_if(answers.begin(), answers.end(), is_again), answers.end());
    return answers;
  }
};

// ---- The model's file ---------------------------------------------------------------------------
//
// "revdict1", the length of the rest, its crc32, the rest. Numbers as this machine stores them.

constexpr std::string_view magic = "revdict1";

std::uint32_t checksum(const std::string& bytes) {
  return static_cast<std::uint32_t>(
      crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

/// What has to be kept to answer questions: all else follows from it.
struct Model {
  Dictionary dictionary;
  Vec<char> is_held;  // by sense
  int rows = 0;
  Vec<Eigen::half> table;
};

/// Appends values to a string or takes them from it: one description of the format for both ways.
struct Archive {
  std::string bytes;
  bool is_reading;
  std::size_t at = 0;

  /// Values as they are; of anything else its size and its elements.
  template <class T>
  void pass(T& value) {
    if constexpr (std::is_trivially_copyable_v<T>) {
      if (!is_reading) bytes.append(sizeof value, '\0');
      if (sizeof value > bytes.size() - at) throw std::runtime_error("it ends early");
      char* here = &bytes[std::exchange(at, at + sizeof value)];
      is_reading ? std::memcpy(&value, here, sizeof value)
                 : std::memcpy(here, &value, sizeof value);
    } else {
      std::size_t size = value.size();
      pass(size);
      if (size > bytes.size() && is_reading) throw std::runtime_error("it ends early");
      value.resize(size);
      for (auto& element : value) pass(element);
    }
  }
  void pass(Link& link) {
    pass(link.sense);
    pass(link.words);
    pass(link.definition);
    pass(link.is_kind);
  }
  void pass(Sense& sense) {
    pass(sense.definition);
    pass(sense.examples);
    pass(sense.words);
    pass(sense.links);
    pass(sense.part);
    pass(sense.is_name);
  }
  void pass(Model& model) {
    pass(model.dictionary.words);
    pass(model.dictionary.familiarity);
    pass(model.dictionary.senses);
    pass(model.is_held);
    pass(model.rows);
    pass(model.table);
  }
};

void save(const std::string& path, Model& model) {
  Archive archive{{}, false};
  archive.pass(model);
  Archive header{std::string(magic), false, magic.size()};
  std::size_t length = archive.bytes.size();
  std::uint32_t crc = checksum(archive.bytes);
  header.pass(length);
  header.pass(crc);
  std::ofstream file(path, std::ios::binary);
  if (!(file << header.bytes << archive.bytes).flush())
    throw std::runtime_error("cannot write " + path);
}

/// Nothing in the file is believed before its length and its checksum are found right.
Model load(const std::string& path) {
  const auto insist = [&path](bool holds, const char* otherwise) {
    if (!holds) throw std::runtime_error("cannot load " + path + ": " + otherwise);
  };
  insist(std::filesystem::is_regular_file(path), "it is not a file");
  std::ifstream file(path, std::ios::binary);
  Archive header{std::string(magic.size() + sizeof(std::size_t) + sizeof(std::uint32_t), '\0'),
                 true, magic.size()};
  file.read(header.bytes.data(), static_cast<std::streamsize>(header.bytes.size()));
  insist(file && header.bytes.compare(0, magic.size(), magic) == 0,
         "it is no model that --save wrote");
  std::size_t length = 0;
  std::uint32_t crc = 0;
  header.pass(length);
  header.pass(crc);
  insist(length == std::filesystem::file_size(path) - header.bytes.size(), "its length is wrong");
  Archive archive{std::string(length, '\0'), true};
  file.read(archive.bytes.data(), static_cast<std::streamsize>(length));
  insist(file && checksum(archive.bytes) == crc, "it is damaged: its checksum is wrong");
  Model model;
  archive.pass(model);
  return model;
}

// ---- The program --------------------------------------------------------------------------------

/// The held-out words before training: by chance, by TF-IDF, by the encoder as it starts.
void print_baselines(const Dictionary& dictionary, const Data& data, Encoder& encoder) {
  const int n = data.heldout.count();
  if (n == 0) {
    std::printf(
        "Nothing held out (a fifth of the definitions at most, two at least), so no test.\n");
    return;
  }
  std::printf(
      "Test: %d senses held out with all their words. Each definition ranks %d\n"
      "held-out words, one a sense. Right is any word of its sense; of equal scores\n"
      "half count as better.\n\n%-17s %8s %9s %8s %7s %8s %6s %5s\n",
      n, n, "", "recall@1", "recall@10", "MRR", "align", "uniform", "loss", "temp");
  print_row("blind guess", blind_guess(n));
  print_row("TF-IDF cosine",
            measure(dictionary, data.heldout, tfidf_scores(data, encoder.lexicon)));
  test("untrained encoder", dictionary, data, encoder);
}

Model learn(const Options& options) {
  Model model;
  Dictionary& dictionary = model.dictionary;
  dictionary = options.pairs.empty() ? read_wordnet(options.wordnet) : read_pairs(options.pairs);
  Random random{options.seed};
  const Vec<Pair> heldout = hold_out(dictionary.senses, options.heldout, random, model.is_held);
  Encoder encoder(random_table(options.rows, options.dim, random));
  Data data = read_texts(dictionary, model.is_held, encoder.lexicon);
  add_training(dictionary, model.is_held, encoder.lexicon, data);
  data.heldout = heldout;
  random.shuffle(data.training);
  if (data.training.count() > options.training_pairs)
    data.training.resize(static_cast<std::size_t>(options.training_pairs));
  std::printf("%d words, %d definitions, %d pairs to learn from\n", dictionary.words.count(),
              dictionary.senses.count(), data.training.count());
  print_baselines(dictionary, data, encoder);
  Trainer(options, dictionary, data, encoder, random).run();
  model.rows = options.rows;
  for (Index i = 0; i < encoder.table.value.size(); ++i)
    model.table.emplace_back(encoder.table.value.data()[i]);
  return model;
}

void answer(const Options& options, const Model& model) {
  Matrix e(model.rows, model.table.count() / model.rows);
  for (Index i = 0; i < e.size(); ++i) e.data()[i] = static_cast<float>(model.table[i]);
  Encoder encoder(std::move(e));
  const Data data = read_texts(model.dictionary, model.is_held, encoder.lexicon);
  Answerer answerer(model.dictionary, data, encoder);
  const auto answer_one = [&answerer](const std::string& question) {
    if (question.find_first_not_of(" \t\r") != std::string::npos) answerer.answer(question);
  };
  for (std::string question : options.questions) {
    if (question != "-")
      answer_one(question);
    else
      while (std::getline(std::cin, question)) answer_one(question);
  }
}

void run(const Options& options) {
  const double begin = seconds();
  if (!options.save.empty() && !std::ofstream(options.save, std::ios::app))
    throw std::runtime_error("cannot write " + options.save);  // rather now than after training
  Model model = options.load.empty() ? learn(options) : load(options.load);
  if (!options.save.empty()) save(options.save, model);
  if (options.load.empty()) std::printf("%.0f seconds\n", seconds() - begin);
  if (!options.questions.empty()) answer(options, model);
}

void make_quick(const CLI::App& app, Options& options) {
  options.training_pairs = 20000;
  options.rows = 1 << 15;
  const auto unless_given = [&app](const char* name, int& option, int value) {
    if (app.count(name) == 0) option = value;
  };
  unless_given("--epochs", options.epochs, 3);
  unless_given("--dim", options.dim, 64);
  unless_given("--batch", options.batch, 256);
  unless_given("--heldout", options.heldout, 500);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app{"Learns to find words from definitions, and answers questions."};
  app.option_defaults()->always_capture_default();
  auto* wordnet = app.add_option("--wordnet", options.wordnet, "folder of WordNet's data files");
  auto* pairs =
      app.add_option("--pairs", options.pairs, "instead: a file of lines `word TAB definition`");
  app.add_option("--ask", options.questions,
                 "a definition to find words for; - reads them line by line");
  app.add_option("--save", options.save, "write the trained model to this file");
  auto* load =
      app.add_option("--load", options.load, "answer with a saved model, without training");
  app.add_option("--epochs", options.epochs, "rounds over the pairs")->check(CLI::Range(0, 1000));
  app.add_option("--batch", options.batch, "pairs a step")->check(CLI::Range(2, 1 << 16));
  app.add_option("--dim", options.dim, "numbers in an embedding")->check(CLI::Range(2, 2048));
  app.add_option("--heldout", options.heldout, "senses kept for the test")
      ->check(CLI::Range(0, 20000));
  app.add_option("--seed", options.seed, "of all that is random");
  app.add_flag("--quick", options.quick, "a small model in a few seconds");
  pairs->excludes(wordnet);
  load->excludes(pairs)->excludes(wordnet);
  CLI11_PARSE(app, argc, argv);
  if (options.quick) make_quick(app, options);
  try {
    if (!options.load.empty() && options.questions.empty())
      throw std::runtime_error("--load needs --ask");
    run(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "reverse_dictionary: %s\n", error.what());
    return 1;
  }
  return 0;
}
